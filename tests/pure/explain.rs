//! `rondo explain`: what is told about a request before it is sent.

use std::sync::Arc;

use rondo::core::api::Api;
use rondo::core::time::WallTime;
use rondo::explain::{Explanation, Header, Request, Unexplained, explain, to_json, to_text};
use rondo::policy::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::compiled::compiled;

const SECRET: &str = "sk-never-to-be-seen";

/// Two OpenAI-like targets and one of Anthropic, with more text in `routing`.
fn snapshot(routing: &str) -> Arc<Snapshot> {
    let text = format!(
        "
providers:
  openai: {{ adapter: openai, base_url: 'https://api.openai.com', keys: [{{ name: main, secret: {{ literal: {SECRET} }} }}] }}
  azure: {{ adapter: azure_openai, base_url: 'https://east.example/openai/v1', keys: [{{ name: east, secret: {{ literal: {SECRET} }} }}] }}
  claude: {{ adapter: anthropic, base_url: 'https://claude.example', keys: [{{ name: ant, secret: {{ literal: {SECRET} }} }}] }}
  gemini: {{ adapter: gemini, base_url: 'https://gemini.example', keys: [{{ name: goog, secret: {{ literal: {SECRET} }} }}] }}
  own: {{ adapter: vllm, base_url: 'http://own.example:8000', ownership: internal, retry: {{ max_attempts: 4, max_elapsed_ms: 20000 }} }}
routes:
  - name: gpt
    models: [gpt-4o, gpt-4o-mini*, gpt-*]
    deadline_ms: 60000
    targets:
      - {{ name: primary, provider: openai, model: gpt-4o-2024 }}
      - {{ name: backup, provider: azure }}
      - {{ name: other, provider: claude }}
    routing: {{ {routing} }}
  - {{ name: claude, models: [claude-x], targets: [{{ name: ant, provider: claude }}] }}
  - {{ name: gemini, models: [gemini-x], targets: [{{ name: goog, provider: gemini }}] }}
  - name: own
    models: [own-x]
    targets: [{{ name: own, provider: own }}, {{ name: spare, provider: openai }}]
    routing: {{ max_upstream_sends: 9 }}
ledger: {{ store: off }}
"
    );
    compiled(&text, None)
}

const TWO_ROUNDS: &str = "max_target_attempts: 2, max_upstream_sends: 4, \
    exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }";

/// What is asked, beside the configuration.
#[derive(Clone, Copy)]
struct Asking<'a> {
    model: &'a str,
    api: Option<Api>,
    body: Option<&'a str>,
    stream: bool,
    headers: &'a [&'a str],
}

const PLAIN: Asking<'static> = Asking {
    model: "gpt-4o",
    api: None,
    body: None,
    stream: false,
    headers: &[],
};

impl<'a> Asking<'a> {
    fn model(self, model: &'a str) -> Self {
        Asking { model, ..self }
    }

    fn api(self, api: Api) -> Self {
        Asking {
            api: Some(api),
            ..self
        }
    }

    fn body(self, body: &'a str) -> Self {
        Asking {
            body: Some(body),
            ..self
        }
    }

    fn stream(self) -> Self {
        Asking {
            stream: true,
            ..self
        }
    }

    fn headers(self, headers: &'a [&'a str]) -> Self {
        Asking { headers, ..self }
    }
}

fn try_explained(snapshot: &Snapshot, asking: Asking<'_>) -> Result<Explanation, Unexplained> {
    let headers: Vec<Header> = asking
        .headers
        .iter()
        .map(|text| Header::parse(text).unwrap())
        .collect();
    let Asking {
        model,
        api,
        body,
        stream,
        ..
    } = asking;
    let body = body.map(str::as_bytes);
    explain(
        snapshot,
        &Request {
            model,
            api,
            body,
            stream,
            headers: &headers,
            client_key: None,
            wall: WallTime::default(),
        },
        None,
    )
}

fn explained(routing: &str, asking: Asking<'_>) -> Value {
    let explanation = try_explained(&snapshot(routing), asking).unwrap();
    let (text, json) = (to_text(&explanation), to_json(&explanation));
    // R-X2
    assert!(
        !text.contains(SECRET) && !json.to_string().contains(SECRET),
        "a secret is printed"
    );
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    json
}

/// `told!(routing, request, { pointer: value })`
macro_rules! told {
    ($routing:expr, $asking:expr, $facts:tt) => {
        check($routing, $asking, json!($facts))
    };
}

/// Every fact is a JSON pointer and what must stand there.
fn check(routing: &str, asking: Asking<'_>, facts: Value) {
    let json = explained(routing, asking);
    for (pointer, expected) in facts.as_object().unwrap() {
        assert_eq!(
            json.pointer(pointer),
            Some(expected),
            "{pointer} of {json:#}"
        );
    }
}

#[test]
fn route_candidates_and_exclusions_are_told_with_reasons() {
    told!("", PLAIN, {
        "/servable": true,
        "/route": { "name": "gpt", "matched": "exact", "pattern": "gpt-4o" },
        "/request/api": "openai_chat",
        "/request/api_chosen": "default",
        "/candidates/0/place": 1,
        "/candidates/0/target": "primary",
        "/candidates/0/model": "gpt-4o-2024",
        "/candidates/0/model_from": "target",
        "/candidates/0/base": "https://api.openai.com",
        "/candidates/0/path": "/v1/chat/completions",
        "/candidates/0/key": "main",
        "/candidates/0/reason": "first target of the route",
        "/candidates/1/target": "backup",
        "/candidates/1/model": "gpt-4o",
        "/candidates/1/model_from": "client",
        "/candidates/1/path": "/openai/v1/chat/completions",
        "/candidates/1/key": "east",
        "/candidates/1/tried": "in_turn",
        "/excluded/0/target": "other",
        "/excluded/0/reason": "api_format",
        "/excluded/0/speaks": ["anthropic_messages", "anthropic_count_tokens"],
    });
}

#[test]
fn the_longest_prefix_is_named() {
    let told = |model, pattern: &str| {
        let asking = PLAIN.model(model);
        told!("", asking, {
            "/route/matched": "prefix",
            "/route/pattern": pattern,
        });
    };
    told("gpt-4o-mini-2024", "gpt-4o-mini*");
    told("gpt-5", "gpt-*");
}

#[test]
fn an_unknown_model_gets_the_nearest_names() {
    let asking = PLAIN.model("claude-y");
    let error = try_explained(&snapshot(""), asking).unwrap_err();
    let Unexplained::UnknownModel { nearest, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(nearest[0], "claude-x");
    assert!(error.to_string().contains("404"), "{error}");
}

#[test]
fn the_format_comes_from_the_option_the_body_or_the_first_target() {
    let told = |model, api, body: Option<&str>, expected: &str, chosen: &str| {
        let asking = Asking {
            model,
            api,
            body,
            ..PLAIN
        };
        told!("", asking, {
            "/request/api": expected,
            "/request/api_chosen": chosen,
        });
    };
    told(
        "gpt-4o",
        Some(Api::OpenaiEmbeddings),
        None,
        "openai_embeddings",
        "given",
    );
    told("claude-x", None, None, "anthropic_messages", "first_target");
    let messages = r#"{"model":"claude-x","messages":[]}"#;
    told(
        "claude-x",
        None,
        Some(messages),
        "anthropic_messages",
        "body",
    );
    let messages = r#"{"model":"gpt-4o","messages":[]}"#;
    told("gpt-4o", None, Some(messages), "openai_chat", "body");
    let responses = r#"{"model":"gpt-4o","input":"hi","instructions":"short"}"#;
    told("gpt-4o", None, Some(responses), "openai_responses", "body");
    let embedding = r#"{"model":"gpt-4o","input":"hi","dimensions":3}"#;
    told("gpt-4o", None, Some(embedding), "openai_embeddings", "body");
    let prompt = r#"{"model":"gpt-4o","prompt":"hi"}"#;
    told("gpt-4o", None, Some(prompt), "openai_completions", "body");
    told(
        "gemini-x",
        None,
        Some(r#"{"contents":[]}"#),
        "gemini",
        "body",
    );
}

#[test]
fn a_gemini_path_carries_the_model_and_what_is_asked() {
    let asking = PLAIN.model("gemini-x").api(Api::Gemini);
    told!("", asking, {
        "/candidates/0/path": "/v1beta/models/gemini-x:generateContent",
    });
    let asking = asking.stream();
    told!("", asking, {
        "/candidates/0/path": "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
    });
}

#[test]
fn budgets_are_totals_with_what_bounds_them() {
    // R-B1 R-B4 R-F3 R-F4
    let routing = "max_retries: 1, retry_on_failure_within_ms: 5000";
    told!(routing, PLAIN, {
            "/budgets/max_target_attempts": 3,
            "/budgets/max_upstream_sends": 4,
            "/budgets/max_retries": 1,
            "/budgets/sends_allowed": 2,
            "/budgets/retry_on_failure_within_ms": 5000,
            "/budgets/deadline_ms": 60_000,
            "/worst_case/sends": 2,
            "/worst_case/rounds": 1,
            "/worst_case/answer_begins_within_ms": 60_000,
            "/worst_case/answer_ends_within_ms": 660_000,
    });
    let asking = PLAIN.headers(&["X-Stainless-Timeout: 10"]);
    told!("", asking, {
        "/request/client_timeout_ms": 10_000,
        "/budgets/route_deadline_ms": 60_000,
        "/budgets/deadline_ms": 10_000,
    });
}

#[test]
fn the_worst_case_counts_what_can_happen() {
    let sends = |routing: &str, model, expected: u32| {
        let asking = PLAIN.model(model);
        told!(routing, asking, {
            "/worst_case/sends": expected,
        });
    };
    // Two candidates, and one extra try of the first on its key.
    sends("", "gpt-4o", 3);
    sends("sticky_key_attempts: 0", "gpt-4o", 2);
    // Two rounds of two, where no extra try can have happened; one round of two and an extra try.
    sends(TWO_ROUNDS, "gpt-4o", 4);
    sends(&format!("{TWO_ROUNDS}, max_retries: 2"), "gpt-4o", 3);
    sends("mode: primary_only", "gpt-4o", 2);
    // Four own tries and an extra one of the first, one of the second.
    sends("", "own-x", 6);
}

/// A refused handshake has run nothing: a 5xx moves on without the opt-in that other requests need.
#[test]
fn a_refused_handshake_moves_on() {
    // R-F1
    let asked = PLAIN.api(Api::OpenaiRealtime);
    let json = explained("", asked);
    let moves = json["moves"].as_array().unwrap();
    let found = moves.iter().find(|entry| entry["failure"] == "http_5xx");
    assert_eq!(found.unwrap()["then"], "next_target");
}

#[test]
fn what_follows_a_failure_is_what_is_decided() {
    // R-F1 R-F2 R-F7 R-K2
    let follows = |routing: &str, failure: &str| {
        let json = explained(routing, PLAIN);
        let moves = json["moves"].as_array().unwrap();
        let found = moves
            .iter()
            .find(|entry| entry["failure"] == failure)
            .cloned();
        found.map(|entry| (entry["first"].clone(), entry["then"].clone()))
    };
    let check = |routing: &str, failure: &str, first: &str, then: &str| {
        assert_eq!(
            follows(routing, failure),
            Some((json!(first), json!(then))),
            "{failure}"
        );
    };
    check("", "not_delivered", "same_target", "next_target");
    check("", "rejected", "next_target", "next_target");
    check("", "uncertified_throttle", "next_target", "next_target");
    check("", "http_5xx", "stop", "stop");
    check("", "ambiguous", "stop", "stop");
    check("", "auth", "stop", "stop");
    check("", "bad_request", "stop", "stop");
    check("", "partial", "stop", "stop");
    check(
        "fallback_strategy: [http_5xx]",
        "uncertified_throttle",
        "stop",
        "stop",
    );
    check(
        "fallback_strategy: [http_5xx]",
        "http_5xx",
        "same_target",
        "next_target",
    );
    check(
        "fallback_strategy: [http_5xx]",
        "rejected",
        "next_target",
        "next_target",
    );
    check(
        "fallback_strategy: [transport_error]",
        "ambiguous",
        "same_target",
        "next_target",
    );
    check("mode: primary_only", "rejected", "round_over", "round_over");
    check(
        "max_retries: 0",
        "not_delivered",
        "round_over",
        "round_over",
    );
    let listed = "fallback_http_statuses: [401, 403]";
    check(listed, "http_401", "next_target", "next_target");
    assert_eq!(
        follows(listed, "auth"),
        None,
        "both of its statuses are listed"
    );
    let json = explained("fallback_http_statuses: [404]", PLAIN);
    let moves = json["moves"].as_array().unwrap();
    let refused = moves
        .iter()
        .find(|entry| entry["failure"] == "bad_request")
        .unwrap();
    assert_eq!(refused["statuses"], json!([400, 413, 422]));
}

#[test]
fn the_second_round_is_judged_with_its_reason() {
    // R-S1 R-S2 R-S7 R-S10 R-S11
    let judged = |routing: &str, asking, possible: &str, reason: Value| {
        told!(routing, asking, {
            "/second_round/possible": possible,
            "/second_round/reason": reason,
        });
    };
    judged(TWO_ROUNDS, PLAIN, "yes", json!(null));
    judged("", PLAIN, "no", json!("off"));
    judged(
        "exhaustion_retry: { max_rounds: 0 }",
        PLAIN,
        "no",
        json!("max_rounds_0"),
    );
    let again = PLAIN.headers(&["x-stainless-retry-count: 1"]);
    judged(TWO_ROUNDS, again, "no", json!("caller_retry"));
    let first = PLAIN.headers(&["x-stainless-retry-count: 0"]);
    judged(TWO_ROUNDS, first, "yes", json!(null));
    let hasty = PLAIN.headers(&["x-request-timeout-ms: 200"]);
    judged(TWO_ROUNDS, hasty, "no", json!("deadline"));
    let poor = format!("{TWO_ROUNDS}, max_retries: 1");
    judged(&poor, PLAIN, "only_when_cooling", json!("send_budget"));
    let bound = r#"{"model":"gpt-4o","input":"hi","previous_response_id":"resp_1"}"#;
    judged(TWO_ROUNDS, PLAIN.body(bound), "no", json!("state_bound"));
    let tool = r#"{"model":"gpt-4o","input":"hi","tools":[{"type":"web_search"}]}"#;
    let acts = PLAIN.body(tool);
    judged(
        TWO_ROUNDS,
        acts,
        "only_when_cooling",
        json!("not_throttled"),
    );
}

#[test]
fn a_bound_request_stays_with_its_first_candidate() {
    // R-F8
    let body = r#"{"model":"gpt-4o","input":"hi","previous_response_id":"resp_1"}"#;
    told!("", PLAIN.body(body), {
        "/request/binding": "response",
        "/candidates/0/tried": "in_turn",
        "/candidates/1/tried": "never",
        "/worst_case/sends": 2,
    });
    told!("", PLAIN, {
        "/request/binding": null,
    });
}

#[test]
fn candidates_beyond_the_attempts_are_told_apart() {
    // R-B2
    told!("max_target_attempts: 1", PLAIN, {
        "/candidates/0/tried": "in_turn",
        "/candidates/1/tried": "when_others_cool",
    });
    told!("mode: primary_only", PLAIN, {
        "/excluded/0/target": "backup",
        "/excluded/0/reason": "primary_only",
    });
}

#[test]
fn a_request_that_no_target_speaks_is_not_servable() {
    let asking = PLAIN.model("claude-x").api(Api::OpenaiChat);
    told!("", asking, {
        "/servable": false,
        "/candidates": [],
        "/excluded/0/reason": "api_format",
        "/worst_case/sends": 0,
        "/worst_case/by_timeouts_ms": 0,
    });
    // Token counts never go to another provider, and no format but Anthropic's has them here.
    let counting = PLAIN.api(Api::AnthropicCountTokens);
    told!("", counting, {
        "/candidates/0/target": "other",
        "/candidates/0/reason": "first target that speaks anthropic_count_tokens",
    });
}

#[test]
fn a_body_that_the_gateway_refuses_is_refused() {
    let refused = |body, expected: &str| {
        let asking = PLAIN.api(Api::OpenaiChat).body(body);
        let error = try_explained(&snapshot(""), asking).unwrap_err();
        let Unexplained::Body { code, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(code, expected);
    };
    refused("not json", "invalid_json");
    refused("{}", "model_missing");
    refused(r#"{"model":7}"#, "invalid_request");
}

#[test]
fn a_body_with_another_model_is_noted() {
    let body = r#"{"model":"gpt-5","messages":[],"stream":true}"#;
    told!("", PLAIN.body(body), {
        "/request/body_model": "gpt-5",
        "/request/stream": true,
        "/request/body_bytes": body.len(),
    });
}

#[test]
fn a_form_is_read_with_its_header_or_by_its_first_line() {
    let body = "--B\r\nContent-Disposition: form-data; name=\"file_id\"\r\n\r\nfile-1\r\n--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-5\r\n--B--\r\n";
    let asking = PLAIN.api(Api::OpenaiTranscriptions).body(body);
    let headers = ["content-type: multipart/form-data; boundary=B"];
    for asking in [asking, asking.headers(&headers)] {
        told!("", asking, {
            "/request/api": "openai_transcriptions",
            "/request/body_model": "gpt-5",
            "/request/binding": "file",
        });
    }
    let other = ["content-type: application/json"];
    let refused = try_explained(&snapshot(""), asking.headers(&other)).unwrap_err();
    assert!(matches!(
        refused,
        Unexplained::Body {
            code: "invalid_request",
            ..
        }
    ));
}

#[test]
fn headers_are_read_as_they_are_typed() {
    assert!(Header::parse("X-Request-Timeout-Ms:5").is_ok());
    for wrong in ["", "no colon", ": value", "two words: value"] {
        assert!(Header::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn json_keys_are_stable() {
    let json = explained(TWO_ROUNDS, PLAIN);
    let keys = |value: &Value| {
        let object = value.as_object().unwrap();
        object.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        keys(&json),
        [
            "servable",
            "request",
            "route",
            "policy",
            "candidates",
            "ranks",
            "excluded",
            "budgets",
            "moves",
            "ends",
            "second_round",
            "worst_case",
            "live"
        ]
    );
    assert_eq!(
        keys(&json["second_round"]),
        ["possible", "reason", "objections", "needs"]
    );
    assert_eq!(
        keys(&json["candidates"][0]),
        [
            "place",
            "reason",
            "arranged",
            "priority",
            "tried",
            "target",
            "provider",
            "adapter",
            "model",
            "model_from",
            "method",
            "base",
            "path",
            "key",
            "keys",
            "key_places",
            "keys_left_out",
            "identity",
            "ownership",
            "retry",
            "tries_max",
            "certified_statuses",
            "timeouts",
            "live",
        ]
    );
}
