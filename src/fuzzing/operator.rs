//! What an operator writes or asks: the configuration, scripts of the scripted provider, query strings of the admin API.
//!
//! Not here: what clients and providers send ([`super`], [`super::request`]).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::choice;
use crate::config::{Env, Loaded, Problem, compile_text, effective};
use crate::core::api::Api;
use crate::core::time::{MonoTime, WallTime};
use crate::explain::{self, Live, Request};
use crate::mock::{Catalog, Plan, Question, Script};
use crate::policy::snapshot::Snapshot;
use crate::records::ask::PAGE_RECORDS_MAX;
use crate::records::{cursor, query};

/// What no message and no view may contain: the value of every variable, the content of every file.
const SECRET: &str = "hush-hush-secret";
/// The same for a literal in the text.
const LITERAL: &str = "hush-literal";
/// Bytes of one message and of one path, at most. An operator reads them in a terminal.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Every variable is set, every file is there.
struct Everything;

impl Env for Everything {
    fn var(&self, _name: &str) -> Option<String> {
        Some(SECRET.to_owned())
    }

    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(SECRET.as_bytes().to_vec())
    }

    fn cores(&self) -> usize {
        2
    }
}

/// Configurations: a snapshot, or findings that stand inside the text, are short and tell no secret. What is accepted is accepted as its
/// own reload, and as the same.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let compile = |previous: Option<&Snapshot>| {
        let (env, catalog) = (Everything, Catalog);
        compile_text("f", text, Path::new("d"), &env, &catalog, previous)
    };
    let hidden = hidden(text);
    match compile(None) {
        Ok(loaded) => {
            loaded
                .warnings
                .iter()
                .for_each(|problem| check_problem(text, problem, &hidden));
            let view = effective(&loaded.snapshot).to_string();
            tells_nothing(&view, &hidden);
            tells_nothing(&format!("{loaded:?}"), &hidden);
            reloads(&loaded, compile(Some(&loaded.snapshot)).ok());
        }
        Err(problems) => {
            assert!(!problems.list().is_empty(), "refused without a reason");
            for problem in problems.list() {
                check_problem(text, problem, &hidden);
            }
        }
    }
}

/// A text that was accepted is accepted again, is the same, and changes nothing that takes a restart.
fn reloads(loaded: &Loaded, again: Option<Loaded>) {
    let (first, second) = (&loaded.snapshot, again.as_ref());
    assert!(second.is_some(), "accepted once, refused at its reload");
    let Some(second) = second else { return };
    assert_eq!(first.digest, second.snapshot.digest, "the same text");
    assert_eq!(second.needs_restart, Vec::<String>::new(), "the same text");
    assert_eq!(effective(first), effective(&second.snapshot));
}

/// The texts that must not be told. A literal counts when it stands nowhere but behind its key.
fn hidden(text: &str) -> Vec<&'static str> {
    let literals = text.matches(LITERAL).count();
    let behind_key = text.matches(&format!("literal: {LITERAL}")).count();
    match literals == behind_key {
        true => vec![SECRET, LITERAL],
        false => vec![SECRET],
    }
}

fn tells_nothing(shown: &str, hidden: &[&str]) {
    for secret in hidden {
        assert!(!shown.contains(secret), "a secret is told");
    }
}

fn check_problem(text: &str, problem: &Problem, hidden: &[&str]) {
    // A text that names the secrets itself may be quoted.
    if !text.contains(SECRET) {
        tells_nothing(&problem.to_string(), hidden);
    }
    for part in [&problem.message, &problem.path] {
        assert!(
            part.len() <= MESSAGE_BYTES_MAX,
            "a message of {} bytes",
            part.len()
        );
        assert!(
            !part.contains(char::is_control),
            "a message of several lines: {part:?}"
        );
    }
    let (line, column) = (problem.at.line, problem.at.column);
    // The end of a text is a place, too: behind its last line break, a line without text.
    let lines = line_lengths(text);
    let length = line.checked_sub(1).and_then(|index| lines.get(index));
    assert!(
        length.is_some_and(|length| (1..=length.saturating_add(1)).contains(&column)),
        "{problem} is not in the text"
    );
}

/// Characters of each line, for YAML's three line breaks.
fn line_lengths(text: &str) -> Vec<usize> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    unified
        .split('\n')
        .map(|line| line.chars().count())
        .collect()
}

/// Scripts: a script, or one message with a place in the text. What is accepted answers every question, and twice the same.
pub fn mock_script(input: &[u8]) {
    let (asked, bytes) = choice(input);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let scripts = match Script::parse_file(text) {
        Ok(scripts) => scripts,
        Err(error) => {
            assert!(error.message.len() <= MESSAGE_BYTES_MAX, "a long message");
            let lines = line_lengths(text).len();
            let place = error.position;
            assert!(place.is_none_or(|(line, _)| line <= lines + 1), "{place:?}");
            return;
        }
    };
    assert!(!scripts.is_empty(), "a file without a server");
    for (_, script) in scripts {
        assert!(script.answers.total() >= 1, "a list without an answer");
        let script = Arc::new(script);
        let [mut first, mut second] = [(); 2].map(|()| Plan::new(Arc::clone(&script)));
        for turn in 0..8_u64 {
            let elapsed = u64::try_from(asked).unwrap_or_default() * turn;
            let question = Question {
                model: ["", "m", "gpt-4o"].get(asked % 3).copied().unwrap_or(""),
                request_id: ["a", "b"].get(asked % 2).copied().unwrap_or(""),
                elapsed: Duration::from_millis(elapsed),
            };
            let (one, other) = (first.next(question), second.next(question));
            assert_eq!(one.place, other.place, "two plans of one script");
            assert_eq!(one.delay, other.delay, "two plans of one script");
        }
    }
}

/// What queries are asked of.
static SNAPSHOT: LazyLock<Option<Snapshot>> = LazyLock::new(|| {
    let text = "
providers:
  a: { adapter: openai, keys: [{ name: k, secret: { env: K } }] }
  b: { adapter: anthropic, keys: [{ name: k, secret: { env: K } }] }
  g: { adapter: gemini, keys: [{ name: k, secret: { env: K } }] }
client_keys: { keys: [{ name: team, secret: { literal: a-key-of-its-own } }] }
routes:
  - name: r
    models: [m, 'gpt-*']
    targets: [{ name: a, provider: a, model: x }, { name: b, provider: b, model: y }]
  - name: g
    models: [g]
    targets: [{ name: g, provider: g, model: z }]
ledger: { store: 'off' }
";
    let (env, catalog) = (Everything, Catalog);
    let loaded = compile_text("f", text, Path::new(""), &env, &catalog, None);
    loaded.ok().map(|loaded| loaded.snapshot)
});

/// Query strings of the admin API: read within their bounds, or refused in a few words that repeat nothing; what is asked of an explanation
/// is answered.
pub fn admin_query(input: &[u8]) {
    const REFUSAL_BYTES_MAX: usize = 512;
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let now = WallTime::from_unix_micros(1_790_000_000_000_000);
    let refusal = |message: &str| {
        assert!(message.len() <= REFUSAL_BYTES_MAX, "{message}");
        assert!(!message.contains(char::is_control), "{message:?}");
    };
    match query::operations(Some(text), now) {
        Ok(asked) => {
            assert!((1..=PAGE_RECORDS_MAX).contains(&asked.limit), "{asked:?}");
            if let Some(before) = &asked.before {
                let again = cursor::from_text(&cursor::to_text(before));
                assert_eq!(again.as_ref(), Ok(before), "a cursor that was read");
            }
        }
        Err(message) => refusal(&message),
    }
    if let Err(message) = query::sums(Some(text), now) {
        refusal(&message);
    }
    match query::explain(Some(text)) {
        Ok(asked) => explained(&asked, now),
        Err(message) => refusal(&message),
    }
    decodes(text);
}

fn explained(asked: &query::ExplainQuery, now: WallTime) {
    let snapshot = SNAPSHOT.as_ref();
    assert!(snapshot.is_some(), "the snapshot of this entry is refused");
    let Some(snapshot) = snapshot else { return };
    let request = Request {
        model: &asked.model,
        api: asked.api,
        body: None,
        stream: asked.stream,
        headers: &asked.headers,
        client_key: asked.client_key.as_deref(),
        wall: now,
    };
    let live = Live {
        now: MonoTime::from_micros(1_000_000),
    };
    for live in [None, Some(live)] {
        let Ok(explanation) = explain::explain(snapshot, &request, live) else {
            continue;
        };
        let view = explain::to_json(&explanation).to_string() + &explain::to_text(&explanation);
        assert!(!view.contains(SECRET), "an explanation tells a secret");
    }
}

/// Percent code, undone, and the reverse.
fn decodes(text: &str) {
    let mut code = String::new();
    for byte in text.bytes() {
        code.push_str(&format!("%{byte:02x}"));
    }
    assert_eq!(query::decode(&code).as_deref(), Some(text));
    if let Some(plain) = query::decode(text) {
        assert!(plain.len() <= text.len(), "decoding made a text longer");
    }
}

/// Bodies with which explanations are asked for, as a file names them: they are understood, or refused.
pub fn explain_body(input: &[u8]) {
    let (kind, body) = choice(input);
    let Some(snapshot) = SNAPSHOT.as_ref() else {
        return;
    };
    let apis: BTreeMap<usize, Api> = Api::ALL.into_iter().enumerate().collect();
    let request = Request {
        model: ["m", "gpt-x", "g", "none"]
            .get(kind % 4)
            .copied()
            .unwrap_or("m"),
        api: apis.get(&(kind / 4)).copied(),
        body: Some(body),
        stream: kind % 2 == 0,
        headers: &[],
        client_key: None,
        wall: WallTime::default(),
    };
    match explain::explain(snapshot, &request, None) {
        Ok(explanation) => {
            assert!(!explain::to_text(&explanation).is_empty());
        }
        Err(unexplained) => assert!(!unexplained.to_string().is_empty()),
    }
}
