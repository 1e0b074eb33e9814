//! What a reload carries over, what it changed, what needs a restart.

use std::sync::Arc;

use rondo::config::Loaded;
use rondo::config::reload::{changes, needs_restart};
use rondo::core::time::MonoTime;
use rondo::policy::cooldown::AsideReason;
use rondo::policy::snapshot::Snapshot;

use super::{FakeEnv, GOOD, compile_after, snapshot, with_routing};

fn reload(previous: &Snapshot, text: &str) -> Loaded {
    compile_after(text, &FakeEnv::usual(), Some(previous)).unwrap()
}

fn cell(
    snapshot: &Snapshot,
    route: usize,
    target: usize,
) -> &Arc<rondo::policy::cooldown::Cooldown> {
    &snapshot.routes[route].targets[target].keys[0].cooldown
}

// R-C2
#[test]
fn generations_count_up_and_digests_tell_files_apart() {
    let first = snapshot(GOOD);
    let second = reload(&first, GOOD);
    assert_eq!(second.snapshot.generation, 2);
    assert_eq!(second.snapshot.digest, first.digest);
    assert!(second.needs_restart.is_empty());
    let third = reload(&second.snapshot, &format!("{GOOD}# a comment\n")).snapshot;
    assert_eq!(third.generation, 3);
    assert_ne!(third.digest, first.digest);
}

// R-C2, R-S12
#[test]
fn cooldowns_and_sleepers_survive_a_reload() {
    let first = snapshot(GOOD);
    let until = MonoTime::from_micros(9);
    cell(&first, 0, 0).extend(until);
    let permit = first.routes[0].waiters.enter(5).unwrap();
    let changed = GOOD.replace("models:", "deadline_ms: 5000\n    models:");
    let second = reload(&first, &changed).snapshot;
    assert_eq!(
        cell(&second, 0, 0).remaining_after(MonoTime::ZERO),
        Some(until)
    );
    assert!(Arc::ptr_eq(cell(&first, 0, 1), cell(&second, 0, 1)));
    assert_eq!(second.routes[0].waiters.waiting_bytes(), 5);
    drop(permit);
    assert_eq!(second.routes[0].waiters.waiting(), 0);
}

// R-S5, R-S12
#[test]
fn a_cooldown_belongs_to_provider_key_and_model() {
    let more = "  - name: more
    models: [other]
    targets:
      - { name: same, provider: b, model: gpt-4o-prod }
      - { name: model, provider: b, model: gpt-4o }
      - { name: clients, provider: b }
      - { name: primary, provider: a }
ledger:";
    let text = GOOD.replace("ledger:", more);
    let first = snapshot(&text);
    assert!(Arc::ptr_eq(cell(&first, 0, 1), cell(&first, 1, 0)));
    let others = [
        cell(&first, 1, 1),
        cell(&first, 1, 2),
        cell(&first, 1, 3),
        cell(&first, 0, 0),
    ];
    for (index, other) in others.iter().enumerate() {
        assert!(!Arc::ptr_eq(cell(&first, 0, 1), other), "{index}");
    }
    // Which model a client will name is not known, so such targets share nothing.
    assert!(!Arc::ptr_eq(cell(&first, 0, 0), cell(&first, 1, 3)));
    let renamed = text.replace(
        "name: main, secret: { env: KEY_B }",
        "name: next, secret: { env: KEY_B }",
    );
    let second = reload(&first, &renamed).snapshot;
    assert!(!Arc::ptr_eq(cell(&first, 0, 1), cell(&second, 0, 1)));
    assert!(Arc::ptr_eq(cell(&first, 0, 0), cell(&second, 0, 0)));
}

// R-C2, R-S12: what is set aside is a secret, what cools is the key of a provider; a rotated secret begins anew, under the same name.
#[test]
fn a_key_that_is_set_aside_stays_so_until_its_secret_changes() {
    let more = "  - name: more
    models: [other]
    targets: [{ name: same, provider: b, model: gpt-4o }]
ledger:";
    let text = GOOD.replace("ledger:", more);
    let first = snapshot(&text);
    let aside = |snapshot: &Snapshot, route: usize, target: usize| {
        Arc::clone(&snapshot.routes[route].targets[target].keys[0].aside)
    };
    assert!(
        Arc::ptr_eq(&aside(&first, 0, 1), &aside(&first, 1, 0)),
        "a key is set aside for every model"
    );
    let until = MonoTime::from_micros(9);
    aside(&first, 0, 1).extend(AsideReason::Refused, until);
    cell(&first, 0, 1).extend(until);
    let known = Some((AsideReason::Refused, until));
    let second = reload(&first, &text).snapshot;
    assert_eq!(aside(&second, 0, 1).remaining_after(MonoTime::ZERO), known);

    let mut env = FakeEnv::usual();
    env.set("KEY_B", "sk-rotated");
    let third = compile_after(&text, &env, Some(&second)).unwrap().snapshot;
    assert_eq!(aside(&third, 0, 1).remaining_after(MonoTime::ZERO), None);
    assert!(Arc::ptr_eq(&aside(&third, 0, 1), &aside(&third, 1, 0)));
    assert_eq!(
        cell(&third, 0, 1).remaining_after(MonoTime::ZERO),
        Some(until)
    );
    // Operations in flight still blame the old secret, and it alone.
    aside(&second, 0, 1).extend(AsideReason::Quota, until);
    assert_eq!(aside(&third, 0, 1).remaining_after(MonoTime::ZERO), None);
}

// R-C2
#[test]
fn what_a_target_has_used_survives_unless_its_limits_change() {
    let limited = |limits: &str| {
        GOOD.replace(
            "provider: a }",
            &format!("provider: a, limits: {{ {limits} }} }}"),
        )
    };
    let account = |snapshot: &Snapshot| snapshot.routes[0].targets[0].limits.clone().unwrap();
    let now = MonoTime::from_micros(9);
    let first = snapshot(&limited("concurrent: 2"));
    let share = account(&first).reserve(1, now).unwrap();
    let same = reload(
        &first,
        &limited("concurrent: 2").replace("gpt-4o-prod", "other"),
    )
    .snapshot;
    assert!(Arc::ptr_eq(&account(&first), &account(&same)));
    assert_eq!(account(&same).usage(now).concurrent, 1);
    let other = reload(&same, &limited("concurrent: 3")).snapshot;
    assert_eq!(account(&other).usage(now).concurrent, 0);
    drop(share);
    assert!(
        reload(&other, GOOD).snapshot.routes[0].targets[0]
            .limits
            .is_none()
    );
    assert!(Arc::ptr_eq(
        &first.routes[0].retry_budget,
        &other.routes[0].retry_budget
    ));
}

// R-C2
#[test]
fn a_bad_file_leaves_the_previous_snapshot_alone() {
    let first = snapshot(GOOD);
    let permit = first.routes[0].waiters.enter(5);
    assert!(compile_after("providers: {}", &FakeEnv::usual(), Some(&first)).is_err());
    assert_eq!(first.generation, 1);
    assert_eq!(first.routes[0].waiters.waiting(), 1);
    drop(permit);
}

// R-C2
#[test]
fn what_changed_is_told_by_its_path_and_without_secrets() {
    let first = snapshot(GOOD);
    assert_eq!(changes(&first, &snapshot(&format!("# x\n{GOOD}"))), [""; 0]);
    let text = GOOD
        .replace("models: [", "deadline_ms: 5000\n    models: [extra, ")
        .replace("name: backup", "name: spare");
    let mut env = FakeEnv::usual();
    env.set("KEY_A", "sk-rotated");
    let second = compile_after(&text, &env, Some(&first)).unwrap().snapshot;
    let expected = [
        "routes.gpt.models",
        "routes.gpt.deadline_ms",
        "routes.gpt.targets.spare: added",
        "routes.gpt.targets.backup: removed",
        "providers.a.keys.main.secret",
    ];
    assert_eq!(changes(&first, &second), expected);
}

// R-C2
#[test]
fn a_changed_order_of_targets_is_told() {
    let text = GOOD.replace(
        "      - { name: primary, provider: a }\n      - { name: backup, provider: b, model: gpt-4o-prod }\n",
        "      - { name: backup, provider: b, model: gpt-4o-prod }\n      - { name: primary, provider: a }\n",
    );
    assert_eq!(
        changes(&snapshot(GOOD), &snapshot(&text)),
        ["routes.gpt.targets: order"]
    );
}

// R-C2
#[test]
fn what_needs_a_restart_is_listed() {
    let first = snapshot(GOOD);
    let head = "server: { listen: [{ address: \"127.0.0.1:8081\" }], threads: 9, shutdown_grace_ms: 1, keepalive_timeout_ms: 9000, route_headers: false }\nadmin: { listen: off }\n";
    // More sends for one operation take effect at once: the attempt loop is bounded by a constant.
    let text = with_routing("max_upstream_sends: 9").replace("store: \"off\"", "store: sqlite");
    let second = reload(&first, &format!("{head}{text}"));
    let expected = [
        "server.listen: changed; takes effect after a restart",
        "server.threads: changed; takes effect after a restart",
        "server.shutdown_grace_ms: changed; takes effect after a restart",
        "admin.listen: changed; takes effect after a restart",
        "ledger: changed; takes effect after a restart",
        "server.keepalive_timeout_ms: changed; takes effect at once for HTTP/1.1, after a restart for HTTP/2",
    ];
    assert_eq!(second.needs_restart, expected);
    assert_eq!(needs_restart(&second.snapshot, &second.snapshot), [""; 0]);
}

// R-C2
#[test]
fn the_state_of_health_survives_while_address_and_rules_are_the_same() {
    let text = |rules: &str| {
        GOOD.replacen(
            "adapter: openai",
            &format!("adapter: openai\n    health: {{ path: /health, {rules} }}"),
            1,
        )
    };
    let health = |snapshot: &Snapshot| snapshot.providers[0].health.clone().unwrap();
    let first = snapshot(&text("unhealthy: 1"));
    health(&first).record(false);
    let same = reload(
        &first,
        &text("unhealthy: 1").replace("gpt-4o-prod", "other"),
    )
    .snapshot;
    assert!(!health(&same).is_healthy());
    let target = same.routes[0].targets[0].health.clone().unwrap();
    assert!(Arc::ptr_eq(&target, &health(&same)));
    let other = reload(&same, &text("unhealthy: 2")).snapshot;
    assert!(health(&other).is_healthy());
}
