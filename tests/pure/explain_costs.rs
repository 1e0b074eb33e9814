//! The worst case that `rondo explain` tells is what the executor can be driven to: never more, and no less.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::certificate::PushbackKind;
use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Carrier};
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::Executor;
use rondo::executor::effect::Next;
use rondo::executor::event::Event;
use rondo::executor::plan::Plan;
use rondo::explain::{Possible, Request, explain};
use rondo::policy::ordering::Candidate;
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;
use crate::support::ms;
use crate::support::reports::{ambiguous, not_delivered, refused, rejected};

/// Failures of every kind of delivery that can be followed by another send.
const KINDS: usize = 5;

fn failure(kind: usize) -> AttemptReport {
    match kind {
        0 => rejected(PushbackKind::Throttle, Carrier::Status, Some(ms(100))),
        1 => not_delivered(),
        2 => refused(500, Class::ServerError, Carrier::Status),
        3 => ambiguous(Class::Transport),
        _ => refused(401, Class::Auth, Carrier::Status),
    }
}

fn snapshot(targets: usize, routing: &str) -> Arc<Snapshot> {
    snapshot_at("", targets, routing)
}

/// The same with more said of the provider.
fn snapshot_at(provider: &str, targets: usize, routing: &str) -> Arc<Snapshot> {
    let names: Vec<String> = (0..targets)
        .map(|index| format!("{{ name: t{index}, provider: one, model: m{index} }}"))
        .collect();
    let targets = names.join(", ");
    let text = format!(
        "
providers: {{ one: {{ adapter: openai, base_url: 'http://one.example'{provider} }} }}
routes: [{{ name: r, models: [m], targets: [{targets}], routing: {{ {routing} }} }}]
ledger: {{ store: off }}
"
    );
    compiled(&text, None)
}

/// What one operation cost.
struct Cost {
    sends: u32,
    rounds: u8,
    /// The failures that were used, as digits; fewer than given when it ended before.
    used: usize,
}

/// Plays an operation whose attempts fail as told, the last kind repeating.
fn play(snapshot: &Snapshot, kinds: &[usize], binding: Option<&'static str>) -> Cost {
    let route = snapshot.route("m").unwrap();
    let plan = Plan {
        candidates: Candidate::each(route),
        sticky_tries: route.routing.sticky_tries,
        pin: None,
        binding,
        caller_retry: false,
        caller_owns_retries: true,
        began: MonoTime::ZERO,
        deadline: MonoTime::ZERO.after(route.deadline),
        tokens: 10,
        held_bytes: 0,
        route: Arc::clone(route),
    };
    let mut executor = Executor::new(plan);
    let mut chance = SmallRng::seed_from_u64(0);
    let (mut now, mut used) = (MonoTime::from_micros(1), 0);
    let mut event = Event::Admitted;
    loop {
        now = now.after(ms(1));
        event = match executor.handle(now, event, &mut chance).next {
            Next::Begin(_) => Event::SendBegun,
            Next::Send => {
                let kind = kinds.get(used).copied().unwrap_or_default();
                used += 1;
                Event::Outcome(failure(kind))
            }
            Next::Wait(until) => {
                now = until;
                Event::WaitElapsed
            }
            Next::Answer(_) | Next::Deliver(_) | Next::End | Next::Continue => break,
        };
    }
    Cost {
        sends: executor.sends(),
        rounds: executor.round().number(),
        used,
    }
}

/// The dearest of all operations, over every sequence of failures.
fn dearest(
    provider: &str,
    targets: usize,
    routing: &str,
    binding: Option<&'static str>,
) -> (u32, u8) {
    let (mut sends, mut rounds) = (0, 0);
    let mut kinds = Vec::new();
    loop {
        // Cooldowns are the snapshot's: each operation begins with none.
        let cost = play(&snapshot_at(provider, targets, routing), &kinds, binding);
        (sends, rounds) = (sends.max(cost.sends), rounds.max(cost.rounds));
        // The next sequence: what was not used cannot matter, so it counts on from the last that was.
        kinds.resize(cost.used, 0);
        while kinds.last() == Some(&(KINDS - 1)) {
            kinds.pop();
        }
        match kinds.last_mut() {
            Some(last) => *last += 1,
            None => return (sends, rounds),
        }
    }
}

// R-B1 R-B2 R-B3 R-K1
#[test]
fn the_worst_case_is_reached_and_never_passed() {
    const BOUND: &str = r#"{"model":"m","messages":[],"input":"x","previous_response_id":"r"}"#;
    let rounds = "exhaustion_retry: { max_rounds: 1, max_wait_ms: 500 }";
    let worlds = [
        (1, String::new()),
        (2, String::new()),
        (3, String::new()),
        (3, "sticky_key_attempts: 0".to_owned()),
        (
            3,
            "sticky_key_attempts: 3, fallback_strategy: [http_5xx, transport_error]".to_owned(),
        ),
        (
            3,
            "max_target_attempts: 2, sticky_key_attempts: 3".to_owned(),
        ),
        (3, "max_retries: 0".to_owned()),
        (3, "max_retries: 1".to_owned()),
        (3, "mode: primary_only, sticky_key_attempts: 3".to_owned()),
        (
            2,
            format!("max_target_attempts: 2, max_upstream_sends: 4, {rounds}"),
        ),
        (
            2,
            format!("max_target_attempts: 2, max_upstream_sends: 9, {rounds}"),
        ),
        (
            3,
            format!("max_target_attempts: 2, max_upstream_sends: 3, {rounds}"),
        ),
        (
            2,
            format!("max_target_attempts: 2, max_upstream_sends: 9, max_retries: 1, {rounds}"),
        ),
        (
            2,
            format!(
                "max_target_attempts: 2, max_upstream_sends: 9, sticky_key_attempts: 6, {rounds}"
            ),
        ),
        (
            3,
            format!("max_target_attempts: 3, max_upstream_sends: 6, {rounds}"),
        ),
    ];
    for (targets, routing) in worlds {
        for body in [None, Some(BOUND.as_bytes())] {
            let snapshot = snapshot(targets, &routing);
            let request = Request {
                wall: WallTime::default(),
                model: "m",
                api: None,
                body,
                stream: false,
                headers: &[],
                client_key: None,
            };
            let told = explain(&snapshot, &request, None).unwrap();
            let binding = told.asked.binding;
            assert_eq!(binding.is_some(), body.is_some());
            let (sends, rounds) = dearest("", targets, &routing, binding);
            let world = format!("{targets} targets, {routing}, bound {binding:?}");
            assert_eq!(told.worst_case.sends, sends, "{world}");
            // A round that only follows when targets cool cannot be met here, where none does.
            if told.second_round.possible != Possible::OnlyWhenCooling {
                assert_eq!(told.worst_case.rounds, rounds, "{world}");
            }
        }
    }
}

// R-B1 R-P2: keys and own retries are in the worst case, too.
#[test]
fn the_worst_case_counts_keys_and_own_retries() {
    const BOUND: &str = r#"{"model":"m","messages":[],"previous_response_id":"r"}"#;
    let key = |name: &str| format!("{{ name: {name}, secret: {{ literal: sk-{name} }} }}");
    let two = format!(", keys: [{}, {}]", key("a"), key("b"));
    let retries = ", ownership: internal, retry: { max_attempts: 3, max_elapsed_ms: 60000, base_delay_ms: 1, max_delay_ms: 1 }";
    let both = format!("{two}{retries}");
    let wide = "max_upstream_sends: 20, sticky_key_attempts: 1";
    for (provider, targets, routing) in [
        (two.as_str(), 1, wide),
        (retries, 1, wide),
        (both.as_str(), 1, wide),
        (both.as_str(), 2, "max_upstream_sends: 3"),
    ] {
        for body in [None, Some(BOUND.as_bytes())] {
            let snapshot = snapshot_at(provider, targets, routing);
            let request = Request {
                wall: WallTime::default(),
                model: "m",
                api: None,
                body,
                stream: false,
                headers: &[],
                client_key: None,
            };
            let told = explain(&snapshot, &request, None).unwrap();
            let (sends, _) = dearest(provider, targets, routing, told.asked.binding);
            let world = format!("{provider} {routing} {:?}", told.asked.binding);
            assert_eq!(told.worst_case.sends, sends, "{world}");
        }
    }
}
