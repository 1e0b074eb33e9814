//! Holds a tree against the tables: unknown and missing keys, types, ranges, forms of text. All that one key tells by itself.
//!
//! Not here: what needs two keys, a file or the environment (`compile/`).

use super::address;
use super::node::{Entry, Node, Plain, Value, plain};
use super::problem::{Position, Report, Spot, clip, join, nearest};
use super::schema::{Field, Given, Kind, Need, Shape, Text};
use super::units;

/// Reports everything that is wrong with `node` as a value of this kind.
pub(super) fn value(report: &mut Report, kind: &Kind, node: &Node, path: &str) {
    if matches!(node.value, Value::Broken) {
        return;
    }
    if node.is_null() && !matches!(kind, Kind::Script) {
        return refuse(
            report,
            node.at,
            path,
            format!("no value; needed is {}", kind.expected()),
        );
    }
    let outcome = match kind {
        Kind::Mapping(shape) => return mapping(report, shape, node, path),
        Kind::MappingOrOff(shape) => match &node.value {
            Value::Mapping(_) => return mapping(report, shape, node, path),
            Value::Scalar { text, .. } if &**text == "off" => return,
            _ => Err(mismatch_text(&kind.expected(), node)),
        },
        Kind::Named { of, max } => return named(report, of, *max, node, path),
        Kind::List { of, min, max } => return list(report, of, (*min, *max), node, path),
        Kind::Script => match &node.value {
            Value::Mapping(_) => Ok(()),
            _ => text(kind, node).map(|_| ()),
        },
        Kind::Flag => flag(node)
            .map(|_| ())
            .ok_or_else(|| flag_mismatch(kind, node)),
        Kind::Number { .. } => number(kind, node).map(|_| ()),
        Kind::Size { .. } => size(kind, node).map(|_| ()),
        Kind::Span { .. } => span(kind, node).map(|_| ()),
        Kind::Choice(_) | Kind::Text(_) => text(kind, node).map(|_| ()),
    };
    if let Err(message) = outcome {
        refuse(report, node.at, path, message);
    }
}

fn refuse(report: &mut Report, at: Position, path: &str, message: String) {
    let path = path.to_owned();
    report.refuse(&Spot { at, path }, message);
}

fn mapping(report: &mut Report, shape: &Shape, node: &Node, path: &str) {
    let Value::Mapping(entries) = &node.value else {
        let message = mismatch_text(&shape.expected(), node);
        return refuse(report, node.at, path, message);
    };
    for entry in entries {
        match shape.field(&entry.key) {
            Some(field) => value(report, &field.kind, &entry.value, &join(path, &entry.key)),
            None => unknown_key(report, shape, entry, path),
        }
    }
    let is_given = |field: &&Field| entries.iter().any(|entry| entry.key == field.key);
    if shape.given == Given::OneSecret {
        let known = shape.fields.iter().filter(is_given).count();
        if known > 1 || entries.is_empty() {
            let message = format!("exactly one source is needed: {}", shape.expected());
            refuse(report, node.at, path, message);
        }
        return;
    }
    if shape.given == Given::One && entries.len() != 1 {
        let message = format!("needed is {}", shape.expected());
        refuse(report, node.at, path, message);
    }
    for field in shape.fields {
        if matches!(field.need, Need::Required) && !is_given(&field) {
            let (kind, about) = (field.kind.expected(), field.about.trim_end_matches('.'));
            let message = format!("missing; needed is {kind} ({about})");
            refuse(report, node.at, &join(path, field.key), message);
        }
    }
}

fn unknown_key(report: &mut Report, shape: &Shape, entry: &Entry, path: &str) {
    let keys = || shape.fields.iter().map(|field| field.key);
    let suggestion = nearest(&entry.key, keys());
    let all: Vec<&str> = keys().collect();
    let allowed = all.join(", ");
    if shape.given == Given::OneSecret {
        // A secret written in the wrong place may be the key itself, so it is not repeated.
        let message = match suggestion {
            Some(known) => format!(
                "unknown key (not shown, it may be secret); did you mean `{known}`? Allowed here: {allowed}"
            ),
            None => format!("unknown key (not shown, it may be secret); allowed here: {allowed}"),
        };
        return refuse(report, entry.key_at, path, message);
    }
    let message = match suggestion {
        Some(known) => format!("unknown key; did you mean `{known}`? Allowed here: {allowed}"),
        None => format!("unknown key; allowed here: {allowed}"),
    };
    refuse(report, entry.key_at, &join(path, &entry.key), message);
}

fn named(report: &mut Report, shape: &'static Shape, max: usize, node: &Node, path: &str) {
    let Value::Mapping(entries) = &node.value else {
        let message = mismatch_text("a mapping from names to settings", node);
        return refuse(report, node.at, path, message);
    };
    if entries.is_empty() {
        refuse(
            report,
            node.at,
            path,
            "empty; at least one is needed".to_owned(),
        );
    }
    if entries.len() > max {
        let message = format!("{} entries; at most {max} are allowed", entries.len());
        refuse(report, node.at, path, message);
    }
    for entry in entries {
        let path = join(path, &entry.key);
        if form(Text::Name, &entry.key).is_err() {
            let message = format!("not a usable name; needed is {}", Text::Name.expected());
            refuse(report, entry.key_at, &path, message);
        }
        value(report, &Kind::Mapping(shape), &entry.value, &path);
    }
}

fn list(report: &mut Report, of: &Kind, (min, max): (usize, usize), node: &Node, path: &str) {
    let Value::List(items) = &node.value else {
        let message = mismatch_text(&format!("a list, each item {}", of.expected()), node);
        return refuse(report, node.at, path, message);
    };
    if items.len() < min {
        refuse(
            report,
            node.at,
            path,
            format!("empty; at least {min} is needed"),
        );
    }
    if items.len() > max {
        let message = format!("{} items; at most {max} are allowed", items.len());
        refuse(report, node.at, path, message);
    }
    for (index, item) in items.iter().enumerate() {
        value(report, of, item, &format!("{path}[{index}]"));
    }
}

fn mismatch(kind: &Kind, node: &Node) -> String {
    mismatch_text(&kind.expected(), node)
}

fn mismatch_text(expected: &str, node: &Node) -> String {
    let hint = match &node.value {
        Value::Scalar { text, plain: true } if !matches!(plain(text), Plain::Text) => {
            "; put it in quotes if it is meant as text"
        }
        _ => "",
    };
    let hint =
        if expected.contains("mapping") || expected.contains("list") || expected.starts_with('{') {
            ""
        } else {
            hint
        };
    format!("found {}; needed is {expected}{hint}", node.kind())
}

fn flag_mismatch(kind: &Kind, node: &Node) -> String {
    match words(node) {
        Some("yes" | "on" | "Yes" | "On" | "YES" | "ON") => {
            "needed is true or false; write true".to_owned()
        }
        Some("no" | "off" | "No" | "Off" | "NO" | "OFF") => {
            "needed is true or false; write false".to_owned()
        }
        Some(word) if matches!(plain(word), Plain::Flag(_)) => {
            "needed is true or false without quotes".to_owned()
        }
        _ => format!("found {}; needed is {}", node.kind(), kind.expected()),
    }
}

fn unknown_word<'k>(found: &str, words: impl Iterator<Item = &'k str>, expected: &str) -> String {
    let found_text = clip(found);
    match nearest(found, words) {
        Some(word) => {
            format!("unknown value {found_text:?}; did you mean `{word}`? Needed is {expected}")
        }
        None => format!("unknown value {found_text:?}; needed is {expected}"),
    }
}

/// The text of a scalar that is text.
fn words(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, plain: false } => Some(text),
        Value::Scalar { text, .. } if plain(text) == Plain::Text => Some(text),
        _ => None,
    }
}

/// Text in the form that its kind asks for.
pub(super) fn text<'n>(kind: &Kind, node: &'n Node) -> Result<&'n str, String> {
    let Some(found) = words(node) else {
        return Err(mismatch(kind, node));
    };
    match kind {
        Kind::Text(rule) => form(*rule, found).map(|()| found),
        Kind::Script => form(Text::File, found).map(|()| found),
        Kind::Choice(choices) => {
            let words = choices.iter().map(|choice| choice.word);
            match words.clone().any(|word| word == found) {
                true => Ok(found),
                false => Err(unknown_word(found, words, &kind.expected())),
            }
        }
        _ => Err(mismatch(kind, node)),
    }
}

/// The value of a scalar that is true or false.
pub(super) fn flag(node: &Node) -> Option<bool> {
    match &node.value {
        Value::Scalar { text, plain: true } => match plain(text) {
            Plain::Flag(flag) => Some(flag),
            _ => None,
        },
        _ => None,
    }
}

/// The value of a whole number within the bounds of its kind.
pub(super) fn number(kind: &Kind, node: &Node) -> Result<u64, String> {
    let Kind::Number { min, max, why } = kind else {
        return Err(mismatch(kind, node));
    };
    let found = match &node.value {
        Value::Scalar { text, plain: true } if plain(text) == Plain::Integer => text,
        Value::Scalar { text, plain: false } if plain(text) == Plain::Integer => {
            return Err(format!(
                "found text; needed is {} without quotes",
                kind.expected()
            ));
        }
        _ => {
            return Err(format!(
                "found {}; needed is {}",
                node.kind(),
                kind.expected()
            ));
        }
    };
    match found.parse::<u64>() {
        Ok(number) if (*min..=*max).contains(&number) => Ok(number),
        Err(_) if found.starts_with("0x") || found.starts_with("0o") => {
            Err(format!("needed is {} in decimal digits", kind.expected()))
        }
        _ => {
            let reason = if why.is_empty() {
                String::new()
            } else {
                format!(" ({why})")
            };
            let found = clip(found);
            Err(format!(
                "{found} is out of range; allowed is {}{reason}",
                range(*min, *max)
            ))
        }
    }
}

fn range(min: u64, max: u64) -> String {
    let between = if max - min == 1 { "or" } else { "to" };
    format!("{min} {between} {max}")
}

/// The bytes of a size within the bounds of its kind.
pub(super) fn size(kind: &Kind, node: &Node) -> Result<u64, String> {
    match (kind, &node.value) {
        (Kind::Size { min, max }, Value::Scalar { text, .. }) => {
            bounded(kind, units::parse_size(text), *min..=*max, text)
        }
        _ => Err(mismatch(kind, node)),
    }
}

/// The milliseconds of a duration within the bounds of its kind.
pub(super) fn span(kind: &Kind, node: &Node) -> Result<u64, String> {
    match (kind, &node.value) {
        (Kind::Span { min, max }, Value::Scalar { text, .. }) => {
            bounded(kind, units::parse_span(text), *min..=*max, text)
        }
        _ => Err(mismatch(kind, node)),
    }
}

fn bounded(
    kind: &Kind,
    value: Option<u64>,
    range: std::ops::RangeInclusive<u64>,
    found: &str,
) -> Result<u64, String> {
    match value {
        Some(value) if range.contains(&value) => Ok(value),
        Some(_) => Err(format!(
            "{} is out of range; allowed is {}",
            clip(found),
            kind.expected()
        )),
        None => Err(format!(
            "cannot read {:?}; needed is {}",
            clip(found),
            kind.expected()
        )),
    }
}

/// Whether text has the form that its rule asks for.
fn form(rule: Text, found: &str) -> Result<(), String> {
    const NAME_BYTES_MAX: usize = 64;
    const MODEL_BYTES_MAX: usize = 256;
    const TEXT_BYTES_MAX: usize = 16 << 10;
    let usable_model = |text: &str| {
        text.len() <= MODEL_BYTES_MAX && !text.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    let fits = match rule {
        Text::Name => {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            (1..=NAME_BYTES_MAX).contains(&found.len()) && found.bytes().all(allowed)
        }
        Text::Model if found.starts_with("--") || found.contains(['"', '\r', '\n']) => {
            let why = "not usable: a model name that begins with `--`, or holds a quote or a line break, could end a field of a form";
            return Err(why.to_owned());
        }
        Text::Model => !found.is_empty() && usable_model(found),
        Text::Pattern => {
            let star_inside = found.strip_suffix('*').unwrap_or(found).contains('*');
            if star_inside {
                return Err("`*` stands at the end only, and once".to_owned());
            }
            !found.is_empty() && usable_model(found)
        }
        Text::Listen => return address::check_listen(found),
        Text::ListenOrOff if found == "off" => true,
        Text::ListenOrOff => return address::check_listen(found),
        Text::Url => return address::parse_base_url(found).map(|_| ()),
        Text::Variable => {
            let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
            let mut bytes = found.bytes();
            found.len() <= MODEL_BYTES_MAX
                && bytes.next().is_some_and(letter)
                && bytes.all(|b| letter(b) || b.is_ascii_digit())
        }
        Text::File | Text::Any => {
            !found.is_empty() && found.len() <= TEXT_BYTES_MAX && !found.contains('\0')
        }
        Text::Header => is_header(found),
        Text::HashOn => {
            found == "client_key" || found.strip_prefix("header:").is_some_and(is_header)
        }
        Text::Date => units::parse_date(found).is_some(),
        // The compiler knows which adapters there are.
        Text::Adapter => true,
    };
    if fits {
        return Ok(());
    }
    // Names, variables and texts may hold a secret put in the wrong place, so what was found is not repeated.
    Err(format!("not usable; needed is {}", rule.expected()))
}

/// Whether it is the name of a header, in the characters that names of headers have in practice.
fn is_header(found: &str) -> bool {
    const NAME_BYTES_MAX: usize = 64;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&found.len()) && found.bytes().all(allowed)
}
