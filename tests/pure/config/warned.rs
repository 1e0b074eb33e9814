//! Files that are accepted with a warning, and files that draw none.

use super::{GOOD, warnings, with_routing};

fn warned(text: &str, expected: &[&str]) {
    assert_eq!(warnings(text), expected, "{text}");
}

#[test]
fn a_good_file_draws_no_warning() {
    warned(GOOD, &[]);
}

// R-S3
#[test]
fn two_rounds_want_sends_for_both() {
    let round = "max_target_attempts: 2\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 10 }\nmax_upstream_sends: ";
    warned(
        &with_routing(&format!("{round}3")),
        &[
            "rondo.yaml:17:27: routes[0].routing.max_upstream_sends: 3 is less than two full rounds; with max_target_attempts 2 the second round may end early below 4",
        ],
    );
    warned(&with_routing(&format!("{round}4")), &[]);
    warned(
        &with_routing(&format!("{round}4\nmax_retries: 1")),
        &[
            "rondo.yaml:18:20: routes[0].routing.max_retries: 1 allows 2 tries in all, so after a first round of 2 none is left for the second; raise it to 2 or more",
        ],
    );
    warned(&with_routing(&format!("{round}4\nmax_retries: 2")), &[]);
}

#[test]
fn targets_that_speak_other_formats_are_pointed_out() {
    let other = GOOD.replace("b:\n    adapter: openai", "b:\n    adapter: anthropic");
    warned(
        &other,
        &[
            "rondo.yaml:12:36: routes[0].targets[0].provider: shares no API format with the other targets (anthropic_messages, anthropic_count_tokens), so it never stands in for them nor they for it",
            "rondo.yaml:13:35: routes[0].targets[1].provider: shares no API format with the other targets (openai_chat, openai_completions, openai_responses, openai_embeddings, openai_speech), so it never stands in for them nor they for it",
        ],
    );
    // That it lacks openai_speech as well is no news.
    let part = "b:\n    adapter: openai_compatible\n    base_url: https://models.example.com";
    warned(
        &GOOD.replace("b:\n    adapter: openai", part),
        &[
            "rondo.yaml:14:35: routes[0].targets[1].provider: not a candidate for openai_responses requests of this route: the provider does not speak that format",
        ],
    );
}

#[test]
fn a_provider_that_no_target_names_is_pointed_out() {
    warned(
        &GOOD.replace("provider: b", "provider: a"),
        &["rondo.yaml:5:3: providers.b: unused; no target of any route names this provider"],
    );
}

// R-C4
#[test]
fn literal_secrets_are_pointed_out_without_being_repeated() {
    warned(
        &GOOD.replace("{ env: KEY_A }", "{ literal: sk-live-123 }"),
        &[
            "rondo.yaml:4:45: providers.a.keys[0].secret.literal: the secret stands in the file for all to read; use { env: VARIABLE } or { file: FILE }",
        ],
    );
}

#[test]
fn keys_in_clear_text_are_pointed_out_unless_they_stay_on_this_machine() {
    let at = |url: &str| {
        let url = format!("a:\n    adapter: openai\n    base_url: \"{url}\"");
        GOOD.replace("a:\n    adapter: openai", &url)
    };
    let line = "rondo.yaml:4:15: providers.a.base_url: the keys of this provider cross a network in clear text; use https";
    warned(&at("http://10.0.0.1:8000"), &[line]);
    warned(&at("http://models.example.com"), &[line]);
    warned(&at("http://127.0.0.1:8000"), &[]);
    warned(&at("http://[::1]:8000"), &[]);
    warned(&at("http://localhost:8000"), &[]);
    let no_keys =
        at("http://10.0.0.1").replace("    keys: [{ name: main, secret: { env: KEY_A } }]\n", "");
    warned(&no_keys, &[]);
}

#[test]
fn settings_without_effect_are_pointed_out() {
    warned(
        &with_routing("fallback_strategy: [http_429, rate_limiting]"),
        &[
            "rondo.yaml:15:26: routes[0].routing.fallback_strategy: rate_limiting has no effect: no target of this route has `limits`",
        ],
    );
    warned(
        &with_routing("mode: primary_only\nmax_target_attempts: 2"),
        &[
            "rondo.yaml:16:28: routes[0].routing.max_target_attempts: no effect beyond 1: mode primary_only tries the first target alone",
        ],
    );
}

// R-F2
#[test]
fn limits_that_end_operations_are_pointed_out() {
    let limited = GOOD.replace(
        "provider: a }",
        "provider: a, limits: { requests_per_minute: 60 } }",
    );
    let found = warnings(&limited);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(
        "routes[0].targets[0].limits: used up, they end the operation with 429 local_limit"
    ));
    let skips = limited.replace(
        "models:",
        "routing: { fallback_strategy: [http_429, rate_limiting] }\n    models:",
    );
    warned(&skips, &[]);
}

// R-P2, R-B1
#[test]
fn sends_too_few_for_an_internal_providers_tries_are_pointed_out() {
    let retry = "adapter: openai\n    ownership: internal\n    retry: { max_attempts: 4, max_elapsed_ms: 9000 }";
    warned(
        &GOOD.replacen("adapter: openai", retry, 1),
        &[
            "rondo.yaml:11:5: routes[0]: 3 sends end an operation before the 4 tries of its internal provider; set max_upstream_sends to 5 or more",
        ],
    );
}
