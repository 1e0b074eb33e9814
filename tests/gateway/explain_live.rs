//! `GET /admin/api/explain`: what a running gateway would do at this moment, and that it then does it.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::admin::{get, host};
use crate::support::client::{ask, call, chat};
use crate::support::process::Process;

const CONFIG: &str = r#"
providers:
  one: { adapter: openai, keys: [{ name: main, secret: { literal: sk-told-to-nobody } }], mock: { answers: [{ preset: openai.throttle, retry_after: 30 }] } }
  two:
    adapter: openai
    keys: [{ name: late, secret: { literal: sk-told-to-nobody }, priority: 1 }, { name: early, secret: { literal: sk-told-to-nobody } }]
    mock: { answers: [ok, { status: 500 }] }
  three: { adapter: openai, keys: [{ name: last, secret: { literal: sk-told-to-nobody } }], mock: { answers: [ok] } }
profiles:
  spread: { fallback_strategy: [http_429, http_5xx], sticky_key_attempts: 1 }
  drawn: { scheduling_mode: load_balance }
routes:
  - name: chat
    models: [m]
    profile: spread
    targets: [{ name: first, provider: one }, { name: second, provider: two }, { name: third, provider: three }]
  - { name: drawn, models: [d], profile: drawn, targets: [{ name: only, provider: three }] }
client_keys: { keys: [{ name: batch, secret: { literal: sk-told-to-nobody } }] }
rules: [{ name: of-batch, when: { client_key: batch, header: { name: x-tenant, prefix: ac } }, actions: [{ restrict_targets: [third] }] }]
"#;

async fn told(process: &Process, path: &str) -> Value {
    let answer = ask(process.admin, "GET", path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    // R-X2
    assert!(!answer.text().contains("sk-told-to-nobody"), "{path}");
    answer.json()
}

/// The targets and keys of a list, in order.
fn order(list: &Value, key: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = list.as_array().unwrap().iter();
    list.map(|entry| (text(&entry["target"]), text(&entry[key])))
        .collect()
}

/// The newest operation, once it has ended.
async fn newest(process: &Process, id: &str) -> Value {
    loop {
        let path = format!("/admin/api/operations/{id}");
        let answer = told(process, &path).await;
        if answer["operation"]["state"] != "pending" {
            return answer["operation"].clone();
        }
    }
}

#[tokio::test]
async fn the_order_that_is_told_while_a_target_cools_is_taken() {
    let process = Process::start("", CONFIG).await;
    let before = told(&process, "/admin/api/explain?model=m").await;
    let pair = |target: &str, key: &str| (target.to_owned(), key.to_owned());
    assert_eq!(
        order(&before["live"]["next"], "key"),
        [
            pair("first", "main"),
            pair("second", "early"),
            pair("third", "last")
        ]
    );
    let first = call(process.addr, chat("m")).await;
    assert_eq!(first.status, 200);
    newest(&process, first.header("x-request-id").unwrap()).await;
    let json = told(&process, "/admin/api/explain?model=m").await;
    let cooling = &json["candidates"][0]["live"];
    assert_eq!(cooling["passed_over"], "cooling");
    assert_eq!(cooling["keys"][0]["state"], "cooling");
    let left = cooling["free_in_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&left), "{left}");
    let next = order(&json["live"]["next"], "key");
    assert_eq!(next, [pair("second", "early"), pair("third", "last")]);
    // The next request goes that way.
    let answer = call(process.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let record = newest(&process, answer.header("x-request-id").unwrap()).await;
    assert_eq!(order(&record["attempts"], "key_name"), next);
    // So does the profile's name, everywhere.
    assert_eq!(record["profile"], "spread");
    let lines = process.until_logged(" profile=spread ", 2).await;
    assert!(
        lines.iter().all(|line| line.contains(" route=chat ")),
        "{lines:?}"
    );
    let metrics = ask(process.admin, "GET", "/metrics").await;
    let line = "rondo_profile_operations_total{profile=\"spread\"} 2";
    assert!(
        metrics.text().lines().any(|known| known == line),
        "{}",
        metrics.text()
    );
    let routes = told(&process, "/admin/api/routes").await;
    assert_eq!(routes["routes"][0]["profile"], "spread");
    // Counted, since one route balances by it.
    assert_eq!(routes["routes"][1]["targets"][0]["in_flight"], 0);
}

#[tokio::test]
async fn headers_and_client_keys_are_those_of_the_query() {
    let process = Process::start("", CONFIG).await;
    let path = "/admin/api/explain?model=m&client_key=batch&header=x-tenant%3A+acme&header=x-b:2&stream=true&api=openai_chat";
    let json = told(&process, path).await;
    assert_eq!(json["policy"]["rules"], json!(["of-batch"]));
    assert_eq!(json["policy"]["client_key"], "batch");
    assert_eq!(json["request"]["stream"], true);
    assert_eq!(
        order(&json["live"]["next"], "key"),
        [("third".to_owned(), "last".to_owned())]
    );
    assert_eq!(json["excluded"][0]["rule"], "of-batch");
    // The key itself is known as well, and not repeated.
    let path = "/admin/api/explain?model=m&header=x-api-key:sk-told-to-nobody";
    assert_eq!(told(&process, path).await["policy"]["client_key"], "batch");
    // What runs has the shape of what the command prints.
    let file = process.file.to_str().unwrap();
    let output = crate::support::process::run(&["explain", "-c", file, "--model", "m", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&printed), keys(&json));
    assert_eq!(printed["live"], Value::Null);
    let batch = [
        "explain",
        "-c",
        file,
        "--model",
        "m",
        "--client-key",
        "batch",
        "--header",
        "x-tenant: acme",
    ];
    let output = crate::support::process::run(&batch);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("rules that match              of-batch"),
        "{text}"
    );
}

#[test]
fn what_is_not_understood_is_refused_with_what_is() {
    let check = |query: &str, status: StatusCode, code: &str, says: &str| {
        let (found, body) = get(host(), &format!("/admin/api/explain{query}"));
        assert_eq!(found, status, "{query}: {body}");
        assert_eq!(body["error"]["code"], code, "{query}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{query}: {message}");
    };
    let bad = |query: &str, says: &str| check(query, StatusCode::BAD_REQUEST, "bad_query", says);
    let allowed = "allowed: model, api, header, client_key, stream";
    bad("", allowed);
    bad("?modle=gpt-x", allowed);
    bad("?model=gpt-x&model=gpt-x", "given twice");
    bad("?model=gpt-x&stream=1", "stream is true or false");
    bad("?model=gpt-x&api=telex", "openai_chat");
    bad("?model=gpt-x&header=x-tenant", "name: value");
    bad("?model=gpt-x&client_key=nobody", "client_keys names none");
    bad("?model=%zz", "percent-encoded");
    let unknown = |query: &str| {
        check(query, StatusCode::NOT_FOUND, "model_not_found", "gpt-x");
    };
    unknown("?model=gpt-y");
    unknown("?model=");
    let (status, _) = get(host(), "/admin/api/explain?model=gpt-x");
    assert_eq!(status, StatusCode::OK);
}

const LIMITED: &str = r#"
providers:
  one: { adapter: openai, keys: [{ name: k, secret: { literal: sk-told-to-nobody } }], mock: { answers: [ok] } }
  two: { adapter: openai, keys: [{ name: k, secret: { literal: sk-told-to-nobody } }], mock: { answers: [ok] } }
routes:
  - name: chat
    models: [m]
    targets: [{ name: first, provider: one, limits: { requests_per_minute: 1 } }, { name: second, provider: two }]
    routing: { fallback_strategy: [http_429, rate_limiting] }
"#;

#[tokio::test]
async fn a_target_at_its_limits_is_told_and_passed_over() {
    let process = Process::start("", LIMITED).await;
    for expected in ["first", "second"] {
        let json = told(&process, "/admin/api/explain?model=m").await;
        let next = order(&json["live"]["next"], "key");
        assert_eq!(next[0].0, expected, "{json}");
        let left = &json["candidates"][0]["live"]["limits"]["requests_left"];
        assert_eq!(*left, u64::from(expected == "first"));
        let answer = call(process.addr, chat("m")).await;
        let record = newest(&process, answer.header("x-request-id").unwrap()).await;
        assert_eq!(order(&record["attempts"], "key_name"), next[..1]);
    }
}
