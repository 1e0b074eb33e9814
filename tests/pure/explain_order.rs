//! What `rondo explain` and the admin plane tell of an order: whose word each value was, which rules apply, what decides among equals,
//! and what holds at one moment.

use std::sync::Arc;
use std::time::Duration;

use rondo::core::time::{MonoTime, WallTime};
use rondo::explain::{Explanation, Header, Live, Request, Unexplained, explain, to_json, to_text};
use rondo::policy::cooldown::AsideReason;
use rondo::policy::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::compiled::compiled;

/// Three targets; `route` stands in the route, `rest` at the top.
fn snapshot(route: &str, rest: &str) -> Arc<Snapshot> {
    let yaml = format!(
        "
providers:
  a:
    adapter: openai
    base_url: http://a.example
    keys: [{{ name: late, secret: {{ literal: s-1 }}, priority: 3 }}, {{ name: early, secret: {{ literal: s-2 }} }}]
  b: {{ adapter: openai, base_url: 'http://b.example', keys: [{{ name: main, secret: {{ literal: s-3 }} }}] }}
  c: {{ adapter: openai, base_url: 'http://c.example', keys: [{{ name: main, secret: {{ literal: s-4 }} }}] }}
routes:
  - name: r
    models: [m]
    targets: [{{ name: one, provider: a, weight: 3 }}, {{ name: two, provider: b }}, {{ name: three, provider: c, priority: 7 }}]
{route}
{rest}
ledger: {{ store: off }}
"
    );
    compiled(&yaml, None)
}

const PLAIN: Request<'static> = Request {
    model: "m",
    api: None,
    body: None,
    stream: false,
    headers: &[],
    client_key: None,
    wall: WallTime::from_unix_micros(0),
};

const NOW: MonoTime = MonoTime::from_micros(5_000_000);

fn headers(texts: &[&str]) -> Vec<Header> {
    let texts = texts.iter();
    texts.map(|text| Header::parse(text).unwrap()).collect()
}

fn told(snapshot: &Snapshot, request: &Request<'_>, live: Option<Live>) -> Explanation {
    let told = explain(snapshot, request, live).unwrap();
    for line in to_text(&told).lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    told
}

fn plan(route: &str, rest: &str, request: &Request<'_>) -> Value {
    to_json(&told(&snapshot(route, rest), request, None))
}

fn at(snapshot: &Snapshot, request: &Request<'_>) -> Value {
    to_json(&told(snapshot, request, Some(Live { now: NOW })))
}

/// The line of a value in the text: its words.
fn line(text: &str, key: &str) -> String {
    let mut lines = text.lines().map(str::trim);
    let found = lines.find(|line| line.starts_with(key));
    let words: Vec<&str> = found.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

const SCHEDULER: &str = "scheduler: { priority_mode: global_key, scheduling_mode: cache_affinity }";
const DEFAULT: &str =
    "profiles: { default: { scheduling_mode: load_balance, max_upstream_sends: 9 } }";

// Scheduler alone, a default profile alone, and both: each value with whose word it is, and the same at every loading.
#[test]
fn three_configurations_are_told_the_same_each_time() {
    let both = format!("{SCHEDULER}\n{DEFAULT}");
    let cases = [
        (
            SCHEDULER,
            "priority_mode global_key (scheduler)",
            "scheduling_mode cache_affinity (scheduler)",
            "",
        ),
        (
            DEFAULT,
            "priority_mode provider (default)",
            "scheduling_mode load_balance (profile default)",
            "max_upstream_sends 9 (profile default)",
        ),
        (
            &both,
            "priority_mode provider (default)",
            "scheduling_mode load_balance (profile default)",
            "max_upstream_sends 9 (profile default)",
        ),
    ];
    for (rest, priority, mode, sends) in cases {
        let once = told(&snapshot("", rest), &PLAIN, None);
        let again = told(&snapshot("", rest), &PLAIN, None);
        let text = to_text(&once);
        assert_eq!(text, to_text(&again));
        assert_eq!(to_json(&once).to_string(), to_json(&again).to_string());
        assert_eq!(line(&text, "priority_mode"), priority);
        assert_eq!(line(&text, "scheduling_mode"), mode);
        assert_eq!(line(&text, "max_upstream_sends"), sends);
    }
}

#[test]
fn every_value_says_whose_word_it_is() {
    let rest = format!(
        "{SCHEDULER}
profiles: {{ fast: {{ sticky_key_attempts: 3, hash_on: client_key, max_retries: 4 }} }}
rules: [{{ name: urgent, actions: [{{ set_scheduling: {{ scheduling_mode: fixed_order }} }}] }}]"
    );
    let route = "    profile: fast\n    routing: { hash_on: 'header:X-User' }";
    let json = plan(route, &rest, &PLAIN);
    let values = &json["policy"]["values"];
    let said = |key: &str, value: Value, from: &str| {
        assert_eq!(
            values[key],
            json!({ "value": value, "from": from }),
            "{key}"
        );
    };
    said("scheduling_mode", json!("fixed_order"), "rule urgent");
    said("hash_on", json!("header:x-user"), "route");
    said("sticky_key_attempts", json!(3), "profile fast");
    said("max_retries", json!(4), "profile fast");
    said("priority_mode", json!("global_key"), "scheduler");
    said("on_client_disconnect", json!("abort"), "default");
    // Every key of `routing` is there with a value of its own.
    let routing = rondo::config::effective(&snapshot(route, &rest))["routes"][0]["routing"].clone();
    let keys: Vec<&String> = routing.as_object().unwrap().keys().collect();
    let told: Vec<&String> = values.as_object().unwrap().keys().collect();
    assert!(
        keys.iter().all(|key| told.contains(key)),
        "{keys:?} {told:?}"
    );
}

const RULES: &str = "
client_keys: { required: REQUIRED, keys: [{ name: batch, secret: { literal: sk-batch } }] }
rules:
  - { name: tenant, when: { header: { name: X-Tenant, value: acme } }, actions: [{ restrict_targets: [two, three] }] }
  - { name: absent, when: { header: { name: x-old, present: false } }, actions: [{ set_target_priority: { target: three, priority: 0 } }] }
  - { name: format, when: { api: openai_embeddings }, actions: [{ restrict_targets: [one] }] }
  - { name: streams, when: { stream: true }, stop: true }
  - { name: of-batch, when: { client_key: batch }, actions: [{ restrict_targets: [three] }] }";

fn rules() -> String {
    RULES.replace("REQUIRED", "false")
}

#[test]
fn rules_that_do_not_apply_say_which_condition_fails() {
    let given = headers(&["x-tenant: umbrella-corp", "x-old: 1"]);
    let request = Request {
        headers: &given,
        ..PLAIN
    };
    let json = plan("", &rules(), &request);
    assert_eq!(json["policy"]["rules"], json!([]));
    assert_eq!(
        json["policy"]["rules_not_applied"],
        json!([
            { "rule": "tenant", "condition": "header", "why": "header x-tenant is not \"acme\"" },
            { "rule": "absent", "condition": "header", "why": "header x-old is there" },
            { "rule": "format", "condition": "api", "why": "the format is not openai_embeddings" },
            { "rule": "streams", "condition": "stream", "why": "no stream is asked for" },
            { "rule": "of-batch", "condition": "client_key", "why": "the client's key is not batch" },
        ])
    );
    // R-X2: what the client sends in a header may be a secret.
    let text = to_text(&told(&snapshot("", &rules()), &request, None));
    assert!(!json.to_string().contains("umbrella") && !text.contains("umbrella"));
    assert_eq!(
        line(&text, "not streams"),
        "not streams no stream is asked for"
    );
}

#[test]
fn rules_apply_in_order_until_one_stops() {
    let given = headers(&["x-tenant: acme"]);
    let request = Request {
        headers: &given,
        client_key: Some("batch"),
        stream: true,
        ..PLAIN
    };
    let json = plan("", &rules(), &request);
    assert_eq!(
        json["policy"]["rules"],
        json!(["tenant", "absent", "streams"])
    );
    assert_eq!(
        json["policy"]["rules_not_applied"][1],
        json!({ "rule": "of-batch", "condition": "stop", "why": "rule streams stops" })
    );
    assert_eq!(json["excluded"][0]["target"], "one");
    assert_eq!(json["excluded"][0]["rule"], "tenant");
    let lifted = "rules: [{ name: lift, actions: [{ set_target_priority: { target: three, priority: 2 } }] }]";
    let json = plan("", lifted, &PLAIN);
    assert_eq!(json["candidates"][2]["reason"], "priority 2 by rule lift");
}

#[test]
fn a_client_is_asked_for_by_the_name_of_its_key() {
    let request = Request {
        client_key: Some("batch"),
        ..PLAIN
    };
    let json = plan("", &rules(), &request);
    assert_eq!(json["policy"]["client_key"], "batch");
    assert_eq!(json["candidates"][0]["target"], "three");
    assert_eq!(
        json["candidates"][0]["reason"],
        "first target that may serve it"
    );
    let shown = headers(&["authorization: Bearer sk-batch"]);
    let by_header = Request {
        headers: &shown,
        ..PLAIN
    };
    assert_eq!(plan("", &rules(), &by_header)["policy"], json["policy"]);
    let nobody = Request {
        client_key: Some("btach"),
        ..PLAIN
    };
    let error = explain(&snapshot("", &rules()), &nobody, None).unwrap_err();
    assert!(matches!(error, Unexplained::UnknownClientKey { .. }));
    assert_eq!(
        error.to_string(),
        "no client key is called \"btach\"; there are: batch"
    );
    // Where a key is required, whoever has none is refused.
    let required = RULES.replace("REQUIRED", "true");
    assert_eq!(
        plan("", &required, &PLAIN)["policy"]["client_refused"],
        true
    );
    assert_eq!(
        plan("", &required, &request)["policy"]["client_refused"],
        false
    );
    assert_eq!(
        plan("", &rules(), &PLAIN)["policy"]["client_refused"],
        false
    );
}

#[test]
fn equals_are_told_with_what_decides_among_them() {
    let ranks = |route: &str, given: &[&str]| {
        let given = headers(given);
        let request = Request {
            headers: &given,
            ..PLAIN
        };
        let json = plan(route, "", &request);
        let ranks = json["ranks"].as_array().unwrap();
        let told = ranks.iter().map(|rank| {
            let names: Vec<&str> = rank["targets"]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_str().unwrap())
                .collect();
            format!(
                "{} by {}",
                names.join(","),
                rank["decided_by"].as_str().unwrap()
            )
        });
        told.collect::<Vec<_>>()
    };
    let file = ["one,two by configuration", "three by alone"];
    assert_eq!(ranks("", &[]), file);
    assert_eq!(
        ranks("    routing: { scheduling_mode: cache_affinity }", &[]),
        file
    );
    let drawn = "    routing: { scheduling_mode: load_balance }";
    assert_eq!(ranks(drawn, &[]), ["one,two by chance", "three by alone"]);
    let hashed = "    routing: { hash_on: 'header:x-user' }";
    assert_eq!(ranks(hashed, &[]), file, "nothing to hash");
    let found = ranks(hashed, &["x-user: 7"]);
    assert!(found[0].ends_with(" by hash"), "{found:?}");
    // Keys over all targets: the late key of the first target is a place of its own.
    let global = ranks("    routing: { priority_mode: global_key }", &[]);
    assert_eq!(
        global,
        ["one,two by configuration", "three by alone", "one by alone"]
    );
    let text = to_text(&told(&snapshot(drawn, ""), &PLAIN, None));
    assert!(text.contains("weights 3 : 1"), "{text}");
    assert!(text.contains("how a draw falls"), "{text}");
}

#[test]
fn keys_stand_in_order_with_reasons() {
    let json = plan("", "", &PLAIN);
    assert_eq!(
        json["candidates"][0]["key_places"],
        json!([
            { "key": "early", "priority": 0, "reason": "key priority 0" },
            { "key": "late", "priority": 3, "reason": "key priority 3" },
        ])
    );
    assert_eq!(
        json["candidates"][1]["key_places"][0]["reason"],
        "the only one"
    );
    let rest =
        "rules: [{ name: swap, actions: [{ set_key_priority: { key: early, priority: 3 } }] }]";
    let equal = plan("", rest, &PLAIN);
    let places = &equal["candidates"][0]["key_places"];
    assert_eq!(places[0]["key"], "late");
    assert_eq!(places[0]["reason"], "key priority 3, as in the file");
}

#[test]
fn without_a_process_nothing_live_is_told() {
    let json = plan("", "", &PLAIN);
    assert_eq!(
        (&json["live"], &json["candidates"][0]["live"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn what_cools_or_is_set_aside_is_passed_over_with_the_time_left() {
    let snapshot = snapshot("", "");
    let route = &snapshot.routes[0];
    let free = at(&snapshot, &PLAIN);
    let order = |json: &Value| -> Vec<String> {
        let next = json["live"]["next"].as_array().unwrap();
        next.iter()
            .map(|next| {
                format!(
                    "{}:{}",
                    next["target"].as_str().unwrap(),
                    next["key"].as_str().unwrap()
                )
            })
            .collect()
    };
    assert_eq!(order(&free), ["one:early", "two:main", "three:main"]);
    assert_eq!(free["candidates"][0]["live"]["passed_over"], Value::Null);
    // One key of the first cools: the other is used. The second is set aside whole.
    let early = &route.targets[0].keys[1];
    early
        .cooldown
        .extend(NOW.after(Duration::from_micros(1_500_001)));
    let refused = &route.targets[1].keys[0];
    refused
        .aside
        .extend(AsideReason::Refused, NOW.after(Duration::from_secs(60)));
    let json = at(&snapshot, &PLAIN);
    assert_eq!(order(&json), ["one:late", "three:main"]);
    assert_eq!(
        json["candidates"][0]["live"],
        json!({
            "passed_over": null,
            "free_in_ms": 0,
            "in_flight": null,
            "healthy": null,
            "limits": null,
            "keys": [
                { "key": "early", "state": "cooling", "for_ms": 1501, "probe": null },
                { "key": "late", "state": "open", "for_ms": 0, "probe": null },
            ],
        })
    );
    assert_eq!(json["candidates"][1]["live"]["passed_over"], "refused");
    assert_eq!(json["candidates"][1]["live"]["free_in_ms"], 60_000);
    let text = to_text(&told(&snapshot, &PLAIN, Some(Live { now: NOW })));
    assert!(text.contains("passed over: refused for 1m"), "{text}");
    assert!(
        text.contains("tried next: one, three; 0 of 256 wait"),
        "{text}"
    );
}

#[test]
fn what_waits_and_what_is_in_flight_is_counted() {
    let snapshot = snapshot("    routing: { scheduling_mode: load_balance }", "");
    let route = &snapshot.routes[0];
    let slot = route.waiters.enter(70).unwrap();
    let sends: Vec<_> = (0..3)
        .map(|_| route.targets[0].load.as_ref().unwrap().enter())
        .collect();
    let json = at(&snapshot, &PLAIN);
    assert_eq!(
        (&json["live"]["waiting"], &json["live"]["waiting_bytes"]),
        (&json!(1), &json!(70))
    );
    let first = &json["candidates"][0];
    assert_eq!(
        (&first["target"], &first["live"]["in_flight"]),
        (&json!("two"), &json!(0))
    );
    assert_eq!(json["candidates"][1]["live"]["in_flight"], 3);
    drop((slot, sends));
}

#[test]
fn a_remembered_candidate_goes_first() {
    let snapshot = snapshot("    routing: { scheduling_mode: cache_affinity }", &rules());
    let request = Request {
        headers: &headers(&["x-old: 1", "x-api-key: sk-of-nobody"]),
        ..PLAIN
    };
    let affinity = |request: &Request<'_>| at(&snapshot, request)["live"]["affinity"].clone();
    assert_eq!(affinity(&PLAIN)["state"], "no_client");
    assert_eq!(affinity(&request)["state"], "nothing");
    let route = &snapshot.routes[0];
    let pin = {
        let header = |name: &str| (name == "x-old").then_some(&b"1"[..]);
        let facts = rondo::policy::ordering::Facts {
            api: rondo::core::api::Api::OpenaiChat,
            model: "m",
            stream: false,
            counts_tokens: false,
            is_bound: false,
            client: snapshot
                .clients
                .identify([&b"sk-of-nobody"[..]].into_iter()),
            header: &header,
            conversions: rondo::core::api::ApiSet::EMPTY,
            now: NOW,
            wall: WallTime::default(),
        };
        let mut chance = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
        let ordered = rondo::policy::ordering::order(&snapshot, route, &facts, &mut chance);
        ordered.pin.unwrap()
    };
    let two = &route.targets[1];
    pin.keep(two, &two.keys[0], NOW);
    let json = at(&snapshot, &request);
    assert_eq!(
        json["live"]["affinity"],
        json!({ "state": "remembered", "last": { "target": "two", "key": "main" }, "followed": true })
    );
    assert_eq!(json["candidates"][0]["target"], "two");
    assert_eq!(json["ranks"][0]["places"], json!([1, 2]));
    // While it cools it is not preferred.
    two.keys[0]
        .cooldown
        .extend(NOW.after(Duration::from_secs(1)));
    let json = at(&snapshot, &request);
    assert_eq!(json["live"]["affinity"]["followed"], false);
    assert_eq!(json["candidates"][0]["target"], "one");
}
