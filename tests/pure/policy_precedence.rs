//! Whose word counts: rule, route, profile, scheduler, built-in default; and that loading twice gives the same.

use rondo::config::effective;
use rondo::core::time::WallTime;
use rondo::explain::{Header, Request, explain, to_json};
use serde_json::{Value, json};

use crate::compiled::compiled;
use crate::config::{errors, warnings};

/// A configuration with two targets; `route` stands in the route, `rest` at the top.
fn text(route: &str, rest: &str) -> String {
    format!(
        "
providers:
  a: {{ adapter: openai, keys: [{{ name: main, secret: {{ env: KEY_A }} }}] }}
  b: {{ adapter: openai, keys: [{{ name: main, secret: {{ env: KEY_B }} }}] }}
routes:
  - name: r
    models: [m]
    targets: [{{ name: one, provider: a }}, {{ name: two, provider: b }}]
{route}
{rest}
ledger: {{ store: off }}
"
    )
}

/// What `rondo explain` tells of the order.
fn policy(route: &str, rest: &str, header: Option<&str>) -> Value {
    let text = text(route, rest)
        .replace("{ env: KEY_A }", "{ literal: x }")
        .replace("{ env: KEY_B }", "{ literal: y }")
        .replace("openai,", "openai, base_url: 'http://h.example',");
    let told = |text: &str| {
        let snapshot = compiled(text, None);
        let headers: Vec<Header> = header.iter().map(|h| Header::parse(h).unwrap()).collect();
        let request = Request {
            model: "m",
            api: None,
            body: None,
            stream: false,
            headers: &headers,
            client_key: None,
            wall: WallTime::default(),
        };
        let explanation = explain(&snapshot, &request, None).unwrap();
        (
            to_json(&explanation)["policy"].clone(),
            effective(&snapshot),
        )
    };
    assert_eq!(told(&text), told(&text), "loading twice gives the same");
    told(&text).0
}

#[track_caller]
fn check(policy: &Value, key: &str, value: &str, from: &str) {
    assert_eq!(
        policy["modes"][key],
        json!({ "value": value, "from": from }),
        "{key}"
    );
}

// With nothing said, everything is built in.
#[test]
fn nothing_said_is_the_default() {
    let told = policy("", "", None);
    assert_eq!(told["profile"], "default");
    check(&told, "priority_mode", "provider", "default");
    check(&told, "scheduling_mode", "fixed_order", "default");
    check(&told, "sticky_key_attempts", "2", "default");
}

const SCHEDULER: &str = "scheduler: { priority_mode: global_key, scheduling_mode: cache_affinity }";
const DEFAULT: &str =
    "profiles: { default: { scheduling_mode: load_balance, sticky_key_attempts: 3 } }";

// Scheduler alone: a system profile is made of it.
#[test]
fn the_scheduler_alone_makes_the_default_profile() {
    let told = policy("", SCHEDULER, None);
    assert_eq!(told["profile"], "default");
    check(&told, "priority_mode", "global_key", "scheduler");
    check(&told, "scheduling_mode", "cache_affinity", "scheduler");
    check(&told, "keep_priority_on_conversion", "false", "default");
}

// A profile `default` alone.
#[test]
fn a_default_profile_is_used_where_none_is_named() {
    let told = policy("", DEFAULT, None);
    check(&told, "priority_mode", "provider", "default");
    check(&told, "scheduling_mode", "load_balance", "profile default");
    check(&told, "sticky_key_attempts", "3", "profile default");
}

// Both: the profile stands alone, and a warning says so.
#[test]
fn a_default_profile_is_not_merged_with_the_scheduler() {
    let both = format!("{SCHEDULER}\n{DEFAULT}");
    let told = policy("", &both, None);
    check(&told, "priority_mode", "provider", "default");
    check(&told, "scheduling_mode", "load_balance", "profile default");
    let warned = warnings(&text("", &both));
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains(": scheduler: no effect: "), "{warned:?}");
}

const RULE: &str = "rules: [{ name: urgent, when: { header: { name: x-urgent, present: true } }, \
    actions: [{ set_scheduling: { scheduling_mode: fixed_order, sticky_key_attempts: 5 } }] }]";

#[test]
fn rule_over_route_over_profile_over_scheduler_over_default() {
    let profiles = "profiles: { fast: { scheduling_mode: load_balance, hash_on: client_key, max_upstream_sends: 9 } }";
    let rest = format!("{SCHEDULER}\n{profiles}\n{RULE}");
    let route = "    profile: fast\n    routing: { hash_on: 'header:X-User' }";
    let told = policy(route, &rest, None);
    assert_eq!(told["profile"], "fast");
    check(&told, "hash_on", "header:x-user", "route");
    check(&told, "scheduling_mode", "load_balance", "profile fast");
    check(&told, "priority_mode", "global_key", "scheduler");
    check(&told, "keep_priority_on_conversion", "false", "default");
    let urgent = policy(route, &rest, Some("x-urgent: 1"));
    assert_eq!(urgent["rules"], json!(["urgent"]));
    check(&urgent, "scheduling_mode", "fixed_order", "rule urgent");
    check(&urgent, "sticky_key_attempts", "5", "rule urgent");
    check(&urgent, "hash_on", "header:x-user", "route");
}

// One key that everybody sets: each level hides all below it, and with nobody left the default stands. Loaded anew without the topmost, one
// after the other.
#[test]
fn each_level_hides_those_below_it() {
    let keys = [
        ("default", "provider", "fixed_order"),
        ("scheduler", "global_key", "load_balance"),
        ("profile fast", "provider", "cache_affinity"),
        ("route", "global_key", "fixed_order"),
        ("rule all", "provider", "load_balance"),
    ];
    for top in 0..keys.len() {
        let set = |level: usize, before: &str, after: &str| {
            let (_, priority, scheduling) = keys[level];
            match level <= top {
                true => format!(
                    "{before}{{ priority_mode: {priority}, scheduling_mode: {scheduling} }}{after}"
                ),
                false => String::new(),
            }
        };
        let rest = format!(
            "{}\nprofiles: {}\n{}",
            set(1, "scheduler: ", ""),
            match top {
                0 | 1 => "{ fast: {} }".to_owned(),
                _ => set(2, "{ fast: ", " }"),
            },
            set(
                4,
                "rules: [{ name: all, actions: [{ set_scheduling: ",
                " }] }]"
            ),
        );
        let route = format!("    profile: fast\n{}", set(3, "    routing: ", ""));
        let told = policy(&route, &rest, None);
        let (from, priority, scheduling) = keys[top];
        check(&told, "priority_mode", priority, from);
        check(&told, "scheduling_mode", scheduling, from);
    }
}

// Any key of `routing` may stand in a profile; the route's own win one by one, and the view says where each is from.
#[test]
fn every_key_of_routing_may_come_from_the_profile() {
    let profiles = "profiles:
  wide:
    fallback_strategy: [http_429, http_5xx]
    max_target_attempts: 2
    max_upstream_sends: 6
    exhaustion_retry: { max_rounds: 1, max_wait_ms: 700 }
    max_retries: 4
    max_failover_elapsed_ms: 2500
    cooldown: { max_ms: 9000, quota_ms: 4000, failures: { count: 3, within_ms: 10, cooldown_ms: 20 } }";
    let route = "    profile: wide\n    routing: { max_upstream_sends: 5 }";
    let text = text(route, profiles)
        .replace("env: KEY_A", "literal: x")
        .replace("env: KEY_B", "literal: y")
        .replace("openai,", "openai, base_url: 'http://h.example',");
    let view = effective(&compiled(&text, None))["routes"][0].clone();
    let routing = &view["routing"];
    assert_eq!(
        routing["fallback_strategy"],
        json!(["http_429", "http_5xx"])
    );
    assert_eq!(routing["max_upstream_sends"], 5);
    assert_eq!(routing["max_retries"], 4);
    assert_eq!(
        routing["exhaustion_retry"],
        json!({ "max_rounds": 1, "max_wait_ms": 700 })
    );
    assert_eq!(routing["max_failover_elapsed_ms"], 2500);
    let cooldown = &routing["cooldown"];
    assert_eq!(
        (&cooldown["max_ms"], &cooldown["quota_ms"]),
        (&json!(9000), &json!(4000))
    );
    assert_eq!(cooldown["failures"]["count"], 3);
    assert_eq!(view["origins"]["max_failover_elapsed_ms"], "profile wide");
    assert_eq!(view["origins"]["max_upstream_sends"], "route");
    assert_eq!(view["origins"]["max_retries"], "profile wide");
    assert_eq!(view["origins"]["on_client_disconnect"], "default");
}

// A profile is written for many routes: what makes no sense with one target says nothing there. R-F5, R-S3
#[test]
fn a_profile_says_nothing_where_nothing_fails_over() {
    let rest = "profiles: { default: { max_retries: 3, retry_on_failure_within_ms: 50, max_failover_elapsed_ms: 90, \
        fallback_strategy: [rate_limiting], max_target_attempts: 2, \
        max_upstream_sends: 4, exhaustion_retry: { max_rounds: 1, max_wait_ms: 10 } } }";
    let one = text("", rest).replace(", { name: two, provider: b }", "");
    assert_eq!(errors(&one), Vec::<String>::new());
}

// R-C1: what is wrong in a profile is told once, where it stands, however many routes use it.
#[test]
fn what_is_wrong_in_a_profile_is_told_once() {
    let rest = "profiles: { default: { exhaustion_retry: { max_rounds: 1, max_wait_ms: 10 } } }";
    let two = text("", rest).replace(
        "routes:",
        "routes:\n  - { name: s, models: [n], targets: [{ name: one, provider: a }, { name: two, provider: b }] }",
    );
    let told = errors(&two);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter()
            .all(|line| line.contains(": profiles.default.exhaustion_retry: needs an explicit"))
    );
}

// R-C1: unknown names are refused where they stand.
#[test]
fn unknown_names_are_refused() {
    let refused = |route: &str, rest: &str, path: &str, what: &str| {
        let told = errors(&text(route, rest));
        let found = told
            .iter()
            .any(|line| line.contains(&format!(": {path}: ")) && line.contains(what));
        assert!(found, "{path} {what}: {told:?}");
    };
    refused(
        "    profile: fst",
        "profiles: { fast: {} }",
        "routes[0].profile",
        "did you mean `fast`?",
    );
    let rule = |body: &str| format!("rules: [{{ name: x, {body} }}]");
    let cases = [
        (
            "when: { route: q }",
            "rules[0].when.route",
            "no route is called q",
        ),
        (
            "when: { client_key: q }",
            "rules[0].when.client_key",
            "no client key is called q",
        ),
        ("when: { api: telex }", "rules[0].when.api", "unknown value"),
        (
            "when: { header: { name: x } }",
            "rules[0].when.header",
            "exactly one of",
        ),
        (
            "when: { header: { name: x, value: a, present: true } }",
            "rules[0].when.header",
            "exactly one of",
        ),
        (
            "actions: [{ restrict_targets: [one, q] }]",
            "rules[0].actions[0].restrict_targets[1]",
            "is called q",
        ),
        (
            "actions: [{ set_target_priority: { target: q, priority: 1 } }]",
            "rules[0].actions[0].set_target_priority.target",
            "is called q",
        ),
        (
            "actions: [{ set_key_priority: { key: q, priority: 1 } }]",
            "rules[0].actions[0].set_key_priority.key",
            "no key is called q",
        ),
        (
            "actions: [{ set_key_priority: { provider: q, key: main, priority: 1 } }]",
            "rules[0].actions[0].set_key_priority.provider",
            "no provider",
        ),
        (
            "actions: [{ restrict_targets: [one], set_scheduling: {} }]",
            "rules[0].actions[0]",
            "one of these keys",
        ),
    ];
    for (body, path, what) in cases {
        refused("", &rule(body), path, what);
    }
    refused(
        "",
        "rules: [{ name: x }, { name: x }]",
        "rules[1].name",
        "two rules",
    );
    refused(
        "    routing: { hash_on: cookie }",
        "",
        "routes[0].routing.hash_on",
        "client_key, or header:",
    );
    let keys = "client_keys: { keys: [{ name: x, secret: { env: KEY_A } }, { name: x, secret: { env: KEY_B } }] }";
    refused("", keys, "client_keys.keys[1].name", "two client keys");
}

// A rule that leaves a route nothing is told before a request finds out; one that can never match is not kept.
#[test]
fn rules_are_prepared_for_each_route() {
    let rest = "
  - { name: s, models: ['n-*'], targets: [{ name: three, provider: a }] }
rules:
  - { name: only-one, actions: [{ restrict_targets: [one] }] }
  - { name: of-s, when: { route: s }, stop: true }
  - { name: of-n, when: { model: 'n-1*' }, actions: [{ set_target_priority: { target: three, priority: 3 } }] }
  - { name: of-none, when: { model: q }, stop: true }";
    let text = text("", rest);
    let warned = warnings(&text);
    assert!(
        warned
            .iter()
            .any(|line| line.contains("leaves route s no target")),
        "{warned:?}"
    );
    let usable = text
        .replace("env: KEY_A", "literal: x")
        .replace("env: KEY_B", "literal: y")
        .replace("openai,", "openai, base_url: 'http://h.example',");
    let snapshot = compiled(&usable, None);
    let names = |route: usize| -> Vec<String> {
        let rules = snapshot.routes[route].policy.rules.iter();
        rules.map(|rule| rule.name.to_string()).collect()
    };
    assert_eq!(names(0), ["only-one"]);
    assert_eq!(names(1), ["only-one", "of-s", "of-n"]);
}
