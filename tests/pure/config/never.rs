//! What never happens: a secret that is printed, a text that makes the reader panic.

use proptest::prelude::*;
use rondo::config::effective;

use super::{FakeEnv, GOOD, compile, compile_in, warnings, with_routing};

const SECRETS: [&str; 5] = [
    "sk-secret-of-a",
    "sk-secret-of-b",
    "secret-of-admin",
    "secret-of-db",
    "sk-literal",
];

fn with_every_secret() -> String {
    let head = "admin: { token: { env: ADMIN_TOKEN } }\n";
    let literal = "keys: [{ name: other, secret: { literal: sk-literal } }, ";
    let ledger = "{ store: postgres, url: { env: DATABASE_URL } }";
    let text = GOOD
        .replacen("keys: [", literal, 1)
        .replace("{ store: \"off\" }", ledger);
    format!("{head}{text}")
}

fn assert_none(shown: &str) {
    for secret in SECRETS {
        assert!(!shown.contains(secret), "{secret} is shown in {shown}");
    }
}

// R-X2
#[test]
fn secrets_are_in_no_debug_output_no_warning_and_no_view() {
    let text = with_every_secret();
    let loaded = compile(&text).unwrap();
    assert_eq!(
        loaded.snapshot.providers[0].keys[0].secret.expose(),
        "sk-literal"
    );
    assert_none(&format!("{loaded:?}"));
    assert_none(&format!("{:#?}", loaded.snapshot));
    assert_none(&warnings(&text).join("\n"));
    let view = effective(&loaded.snapshot).to_string();
    assert_none(&view);
    assert!(view.contains("[redacted]"));
}

// R-X2
#[test]
fn secrets_are_in_no_error() {
    let mut env = FakeEnv::usual();
    for (name, secret) in [("KEY_A", SECRETS[0]), ("KEY_B", SECRETS[1])] {
        env.set(name, &format!("{secret}\u{1}"));
    }
    let text = with_every_secret();
    for broken in [
        text.clone(),
        text.replace("literal:", "litral:"),
        text.replace("{ literal: sk-literal }", "sk-literal"),
        text.replace("{ literal: sk-literal }", "[sk-literal]"),
        text.replace("{ literal: sk-literal }", "{ sk-literal: literal }"),
        text.replace("{ literal: sk-literal }", "{ env: sk-literal }"),
        text.replace("secret: { literal: sk-literal }", "literal: sk-literal"),
        text.replace(
            "secret: { literal: sk-literal }",
            "secret: { literal: *sk-literal }",
        ),
        text.replace(
            "secret: { literal: sk-literal }",
            "secret: { literal: &sk-literal x }",
        ),
        text.replace(
            "secret: { literal: sk-literal }",
            "secret: { literal: !sk-literal x }",
        ),
        text.replace(
            "secret: { literal: sk-literal }",
            "secret: { literal: \"sk-literal }",
        ),
        text.replace(
            "adapter: openai",
            "adapter: openai\n    base_url: https://sk-literal@host",
        ),
    ] {
        let problems = compile_in(&broken, &env).expect_err(&broken);
        assert_none(&problems.to_string());
        assert_none(&format!("{problems:?}"));
    }
}

#[test]
fn a_file_that_is_too_deep_or_too_large_is_refused() {
    let deep = format!("a: {}", "[".repeat(40));
    let found = super::errors(&deep);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].ends_with("nested deeper than 32 levels"),
        "{found:?}"
    );
    let large = " ".repeat((4 << 20) + 1);
    let found = super::errors(&large);
    assert_eq!(
        found,
        ["rondo.yaml:1:1: config: the file has 4194305 bytes; at most 4194304 are read"]
    );
}

// R-C1: what a file says may be shown in a terminal, and in a log of lines.
#[test]
fn no_message_carries_a_control_character() {
    for text in [
        GOOD.replacen("adapter: openai", "adapter: \"op\\x1b[2Jenai\"", 1),
        GOOD.replacen("adapter: openai", "adapter: openai\n    \"a\\nb\": 1", 1),
        "providers: { \"open\\u0085ai\": { adapter: openai } }\nroutes: [{ models: [m], targets: [{ provider: openai, model: x }] }]\n".to_owned(),
    ] {
        let problems = compile(&text).expect_err(&text);
        for problem in problems.list() {
            assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
        }
    }
}

// R-C1: a file of nothing but errors, and a key as long as a file, are told in bounded space.
#[test]
fn a_flood_of_errors_is_told_in_bounded_space() {
    let many: String = (0..5000).map(|number| format!("a{number}: 1\n")).collect();
    let found = super::errors(&many);
    assert_eq!(found.len(), 1001);
    assert!(
        found[1000].starts_with("rondo.yaml:5000:1: config: and "),
        "{}",
        found[1000]
    );
    assert!(found[1000].ends_with(" more up to here"), "{}", found[1000]);
    let long = format!(
        "{}: [ 1, 2, : ]\nproviders: {{ {}: {{ x: 1 }} }}\n",
        "k".repeat(9000),
        "n".repeat(9000)
    );
    for line in super::errors(&long) {
        assert!(line.len() < 3200, "{} bytes", line.len());
    }
}

// R-C1: what is missing at the end of a text is looked for there, not one line below.
#[test]
fn what_is_missing_at_the_end_is_placed_in_the_text() {
    let found = super::errors("a: {\"b\":\n[x]");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("rondo.yaml:2:"), "{found:?}");
}

/// Pieces that YAML and this configuration give a meaning to.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "providers",
        "routes",
        "routing",
        "targets",
        "a",
        "models",
        ": ",
        ":",
        "- ",
        "-",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "|",
        ">",
        "&x ",
        "*x",
        "!",
        "!!str ",
        "<<",
        "? ",
        "#",
        "%",
        "---",
        "...",
        "~",
        "null",
        "0",
        "-1",
        "1e400",
        "32MiB",
        "\t",
        "\r",
        "\u{feff}",
        "\u{0}",
        "\\",
        "secret",
        "env",
        "KEY_A",
        "mock",
        "keys",
        "adapter",
        "openai",
        "é",
        "@",
        "`",
    ];
    prop_oneof![
        8 => prop::sample::select(WORDS).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

proptest! {
    // R-C1
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        let _ = compile(&text);
    }

    // R-C1
    #[test]
    fn no_yaml_like_text_makes_the_reader_panic(pieces in prop::collection::vec(piece(), 0..60)) {
        let _ = compile(&pieces.concat());
    }

    // R-C1
    #[test]
    fn no_change_of_a_good_file_makes_the_reader_panic(
        at in 0..4096_usize,
        length in 0..40_usize,
        pieces in prop::collection::vec(piece(), 0..4),
    ) {
        let text = with_routing("max_target_attempts: 2\nexhaustion_retry: { max_rounds: 0 }");
        let chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        let end = (at + length).min(chars.len());
        let changed: String = chars[..at].iter().collect::<String>()
            + &pieces.concat()
            + &chars[end..].iter().collect::<String>();
        let _ = compile(&changed);
    }
}
