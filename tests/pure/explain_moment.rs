//! What a running process tells of local limits, health, probes and the retry budget.

use std::sync::Arc;
use std::time::Duration;

use rondo::core::time::{MonoTime, WallTime};
use rondo::explain::{Live, Request, explain, to_json, to_text};
use rondo::policy::cooldown::FailureRules;
use rondo::policy::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::compiled::compiled;

const NOW: MonoTime = MonoTime::from_micros(5_000_000);

fn snapshot(routing: &str) -> Arc<Snapshot> {
    let yaml = format!(
        "
providers:
  a: {{ adapter: openai, base_url: 'http://a.example', keys: [{{ name: k, secret: {{ literal: s-1 }} }}], health: {{ path: /up }} }}
  b: {{ adapter: openai, base_url: 'http://b.example', keys: [{{ name: k, secret: {{ literal: s-2 }} }}] }}
routes:
  - name: r
    models: [m]
    targets:
      - {{ name: one, provider: a }}
      - {{ name: two, provider: b, limits: {{ requests_per_minute: 3, concurrent: 1 }} }}
    routing: {{ {routing} }}
ledger: {{ store: off }}
"
    );
    compiled(&yaml, None)
}

fn told_at(snapshot: &Snapshot, now: MonoTime) -> Value {
    let request = Request {
        model: "m",
        api: None,
        body: None,
        stream: false,
        headers: &[],
        client_key: None,
        wall: WallTime::default(),
    };
    let told = explain(snapshot, &request, Some(Live { now })).unwrap();
    for line in to_text(&told).lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    to_json(&told)
}

fn told(snapshot: &Snapshot) -> Value {
    told_at(snapshot, NOW)
}

fn next(json: &Value) -> Vec<&str> {
    let next = json["live"]["next"].as_array().unwrap();
    next.iter()
        .map(|next| next["target"].as_str().unwrap())
        .collect()
}

#[test]
fn local_limits_tell_what_is_left_and_what_they_end() {
    for (routing, ends) in [
        ("fallback_strategy: [http_429]", json!("two")),
        ("fallback_strategy: [http_429, rate_limiting]", Value::Null),
    ] {
        let snapshot = snapshot(routing);
        let free = told(&snapshot);
        assert_eq!(next(&free), ["one", "two"]);
        assert_eq!(free["live"]["limited_at"], Value::Null);
        let limits = snapshot.routes[0].targets[1].limits.as_ref().unwrap();
        let slot = limits.reserve(0, NOW).unwrap();
        let json = told(&snapshot);
        assert_eq!(next(&json), ["one"], "{routing}");
        assert_eq!(json["live"]["limited_at"], ends);
        let two = &json["candidates"][1]["live"];
        assert_eq!(two["passed_over"], "limited");
        assert_eq!(
            two["limits"],
            json!({ "requests_left": 2, "tokens_left": null, "concurrent_left": 0, "exhausted": true, "room_in_ms": null })
        );
        drop(slot);
        assert_eq!(
            next(&told(&snapshot)),
            ["one", "two"],
            "asking took nothing"
        );
    }
}

#[test]
fn an_unhealthy_provider_is_passed_over_unless_nobody_is_left() {
    let snapshot = snapshot("");
    let health = snapshot.routes[0].targets[0].health.as_ref().unwrap();
    assert_eq!(told(&snapshot)["candidates"][0]["live"]["healthy"], true);
    while health.is_healthy() {
        health.record(false);
    }
    let json = told(&snapshot);
    assert_eq!(json["candidates"][0]["live"]["passed_over"], "unhealthy");
    assert_eq!(next(&json), ["two"]);
}

#[test]
fn whoever_is_tried_again_by_another_comes_last() {
    let snapshot = snapshot("");
    let cooldown = &snapshot.routes[0].targets[0].keys[0].cooldown;
    cooldown.extend(NOW);
    let later = NOW.after(Duration::from_millis(1));
    let json = told_at(&snapshot, later);
    assert_eq!(json["candidates"][0]["live"]["keys"][0]["probe"], "due");
    assert_eq!(next(&json), ["one", "two"]);
    let probe = cooldown.take_probe(later).unwrap();
    let json = told_at(&snapshot, later);
    assert_eq!(
        json["candidates"][0]["live"]["keys"][0]["probe"],
        "under_way"
    );
    assert_eq!(next(&json), ["two", "one"]);
    drop(probe);
}

#[test]
fn whoever_is_tried_by_another_comes_before_what_limits_end() {
    let snapshot = snapshot("fallback_strategy: [http_429]");
    let [one, two] = &snapshot.routes[0].targets[..] else {
        panic!("two targets");
    };
    let cooldown = &one.keys[0].cooldown;
    cooldown.extend(NOW);
    let probe = cooldown.take_probe(NOW).unwrap();
    let slot = two.limits.as_ref().unwrap().reserve(0, NOW).unwrap();
    let json = told(&snapshot);
    assert_eq!(next(&json), ["one"]);
    assert_eq!(json["live"]["limited_at"], "two");
    drop((probe, slot));
}

#[test]
fn what_failed_too_often_is_passed_over() {
    let snapshot = snapshot("");
    let cooldown = &snapshot.routes[0].targets[0].keys[0].cooldown;
    let rules = FailureRules {
        count: 1,
        within: Duration::from_secs(1),
        cooldown: Duration::from_secs(2),
    };
    cooldown.strike(cooldown.seen(NOW), &rules, NOW);
    let json = told(&snapshot);
    let live = &json["candidates"][0]["live"];
    assert_eq!(
        (&live["passed_over"], &live["free_in_ms"]),
        (&json!("failing"), &json!(2000))
    );
    assert_eq!(next(&json), ["two"]);
}

#[test]
fn the_retry_budget_tells_what_is_left() {
    let snapshot = snapshot("max_failover_elapsed_ms: 1500");
    let budget = &snapshot.routes[0].retry_budget;
    let before = told(&snapshot);
    let left = before["live"]["retry_budget"]["left"].as_u64().unwrap();
    assert!(budget.charge(NOW));
    let json = told(&snapshot);
    assert_eq!(
        json["live"]["retry_budget"],
        json!({ "left": left - 1, "charged": 1 })
    );
    assert_eq!(json["budgets"]["max_failover_elapsed_ms"], 1500);
    assert_eq!(
        json["policy"]["values"]["max_failover_elapsed_ms"]["from"],
        "route"
    );
}
