//! Sizes such as `32MiB` and durations such as `30d`: read from text, and written in the shortest exact form.

/// Suffixes of sizes, largest first.
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
/// Suffixes of durations in milliseconds, largest first.
const SPANS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Bytes: `32MiB`, `512KiB`, `1GiB`, `100B` or a bare number.
pub fn parse_size(text: &str) -> Option<u64> {
    match split(text)? {
        (number, "") => Some(number),
        (number, unit) => scale(number, unit, &SIZES),
    }
}

/// Milliseconds: `30d`, `12h`, `5m`, `10s`, `250ms`. A unit is required.
pub fn parse_span(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    scale(number, unit, &SPANS)
}

/// The shortest exact form of a size.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

/// The shortest exact form of a duration in milliseconds.
pub fn show_span(millis: u64) -> String {
    show(millis, &SPANS)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

fn scale(number: u64, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let fitting = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .or(units.last());
    match fitting {
        Some((unit, factor)) => format!("{}{unit}", value / factor),
        None => value.to_string(),
    }
}
