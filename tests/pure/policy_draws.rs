//! Draws by weight and load, and consistent hashing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::api::{Api, ApiSet};
use rondo::core::time::{MonoTime, WallTime};
use rondo::policy::ordering::{Client, Facts, order};
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;
use crate::support::ordered::{Ask, told};

/// A route over so many targets with these weights.
fn targets(weights: &[u32], routing: &str, keys: &str) -> Arc<Snapshot> {
    let (mut providers, mut targets) = (String::new(), String::new());
    for (index, weight) in weights.iter().enumerate() {
        let _ = writeln!(
            providers,
            "  p{index}: {{ adapter: openai, base_url: 'http://p{index}.example'{keys} }}"
        );
        let _ = write!(
            targets,
            "{{ name: t{index}, provider: p{index}, weight: {weight} }}, "
        );
    }
    compiled(
        &format!(
            "
providers:
{providers}
routes: [{{ name: r, models: [m], targets: [{targets}], routing: {{ {routing} }} }}]
ledger: {{ store: off }}
"
        ),
        None,
    )
}

/// How often each target goes first.
fn shares(snapshot: &Snapshot, picks: u32) -> Vec<f64> {
    let route = snapshot.route("m").unwrap();
    let facts = Facts {
        api: Api::OpenaiChat,
        model: "m",
        stream: false,
        counts_tokens: false,
        is_bound: false,
        client: Client::Absent,
        header: &|_| None,
        conversions: ApiSet::EMPTY,
        now: MonoTime::ZERO,
        wall: WallTime::default(),
    };
    let mut rng = SmallRng::seed_from_u64(11);
    let mut counts = vec![0_u32; route.targets.len()];
    for _ in 0..picks {
        let ordered = order(snapshot, route, &facts, &mut rng);
        assert_eq!(
            ordered.candidates.len(),
            counts.len(),
            "every target is a candidate"
        );
        counts[ordered.candidates[0].target] += 1;
    }
    counts
        .iter()
        .map(|count| f64::from(*count) / f64::from(picks))
        .collect()
}

const BALANCED: &str = "scheduling_mode: load_balance";

#[test]
fn four_equal_targets_get_equal_shares() {
    for share in shares(&targets(&[1; 4], BALANCED, ""), 100_000) {
        assert!((share - 0.25).abs() < 0.03 * 0.25, "{share}");
    }
}

#[test]
fn weights_are_shares() {
    let shares = shares(&targets(&[5, 3, 2], BALANCED, ""), 100_000);
    for (share, expected) in shares.iter().zip([0.5, 0.3, 0.2]) {
        assert!((share - expected).abs() < 0.01, "{shares:?}");
    }
}

#[test]
fn a_slow_target_gets_fewer() {
    let snapshot = targets(&[1; 4], BALANCED, "");
    let load = snapshot.routes[0].targets[1].load.as_ref().unwrap();
    let in_flight: Vec<_> = (0..5).map(|_| load.enter()).collect();
    let slow = shares(&snapshot, 20_000);
    // It is chosen only when it would be compared with itself, which it never is.
    assert!(slow[1] < 0.01, "{slow:?}");
    drop(in_flight);
    assert!((shares(&snapshot, 20_000)[1] - 0.25).abs() < 0.02);
}

// Priority comes first: a draw is among equals.
#[test]
fn a_draw_is_among_equals() {
    let snapshot = targets(&[1; 3], &format!("{BALANCED}, max_target_attempts: 3"), "");
    let text = "
providers: { p: { adapter: openai, base_url: 'http://p.example' }, q: { adapter: openai, base_url: 'http://q.example' } }
routes:
  - name: r
    models: [m]
    targets: [{ name: late, provider: p, priority: 1 }, { name: a, provider: p }, { name: b, provider: q }]
    routing: { scheduling_mode: load_balance }
ledger: { store: off }
";
    let with_priority = compiled(text, None);
    let mut seen = BTreeMap::new();
    for seed in 0..200 {
        *seen
            .entry(told(&with_priority, &Ask::of("m"), seed))
            .or_insert(0) += 1;
    }
    let orders: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(orders, ["a:- b:- late:-", "b:- a:- late:-"]);
    let mut seen = BTreeMap::new();
    for seed in 0..500 {
        *seen
            .entry(told(&snapshot, &Ask::of("m"), seed))
            .or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 6, "all orders of three: {seen:?}");
}

// Keys of one priority are drawn by their weight.
#[test]
fn keys_of_equal_priority_are_drawn() {
    let keys = ", keys: [{ name: a, secret: { literal: x }, weight: 3 }, { name: b, secret: { literal: y } }, \
        { name: c, secret: { literal: z }, priority: 1 }]";
    let snapshot = targets(&[1], BALANCED, keys);
    let mut first = 0;
    for seed in 0..4_000 {
        let order = told(&snapshot, &Ask::of("m"), seed);
        assert!(order == "t0:a,b,c" || order == "t0:b,a,c", "{order}");
        first += u32::from(order == "t0:a,b,c");
    }
    assert!((2_850..=3_150).contains(&first), "{first}");
}

// Everything is the same under the same seed.
#[test]
fn a_draw_is_repeatable() {
    let snapshot = targets(&[1, 2, 3, 4], BALANCED, "");
    for seed in 0..100 {
        assert_eq!(
            told(&snapshot, &Ask::of("m"), seed),
            told(&snapshot, &Ask::of("m"), seed)
        );
    }
}

const HASHED: &str = "hash_on: 'header:x-user', max_target_attempts: 8";

fn first(snapshot: &Snapshot, user: &str) -> String {
    let order = told(snapshot, &Ask::of("m").header("x-user", user), 1);
    order.split(':').next().unwrap().to_owned()
}

#[test]
fn hashing_needs_no_chance_and_spreads() {
    let snapshot = targets(&[1; 4], HASHED, "");
    let mut counts = BTreeMap::new();
    for user in 0..8_000 {
        let user = format!("user-{user}");
        assert_eq!(first(&snapshot, &user), first(&snapshot, &user));
        *counts.entry(first(&snapshot, &user)).or_insert(0) += 1;
    }
    assert!(
        counts.values().all(|count| (1_850..2_150).contains(count)),
        "{counts:?}"
    );
    // A request without the header is arranged by the mode.
    assert_eq!(told(&snapshot, &Ask::of("m"), 1), "t0:- t1:- t2:- t3:-");
    let weighted = targets(&[3, 1], HASHED, "");
    let share = (0..8_000)
        .filter(|user| first(&weighted, &format!("u{user}")) == "t0")
        .count();
    assert!((5_850..6_150).contains(&share), "{share}");
}

// The place of a value is the same in every process and release: what was warm stays warm over a restart.
#[test]
fn hashing_places_a_value_where_it_always_was() {
    let snapshot = targets(&[1; 4], HASHED, "");
    let orders = ["ann", "ben", "cem", "dora", "eve"].map(|user| {
        let order = told(&snapshot, &Ask::of("m").header("x-user", user), 1);
        order.replace(":-", "")
    });
    let ever = [
        "t0 t3 t2 t1",
        "t3 t1 t2 t0",
        "t0 t1 t3 t2",
        "t0 t2 t1 t3",
        "t0 t2 t3 t1",
    ];
    assert_eq!(orders, ever);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // When one of n leaves, only what was its own moves: about one in n, and nothing else at all.
    #[test]
    fn a_target_that_leaves_moves_its_own_requests_alone(count in 3_usize..8, gone in 0_usize..8, salt in any::<u32>()) {
        let gone = gone % count;
        let full = targets(&vec![1; count], HASHED, "");
        let mut text = String::new();
        for index in (0..count).filter(|index| *index != gone) {
            let _ = write!(text, "{{ name: t{index}, provider: p{index} }}, ");
        }
        let mut providers = String::new();
        for index in 0..count {
            let _ = writeln!(providers, "  p{index}: {{ adapter: openai, base_url: 'http://p{index}.example' }}");
        }
        let less = compiled(&format!("
providers:
{providers}
routes: [{{ name: r, models: [m], targets: [{text}], routing: {{ hash_on: 'header:x-user' }} }}]
ledger: {{ store: off }}
"), None);
        let users = 600;
        let mut moved = 0;
        for user in 0..users {
            let user = format!("{salt}-{user}");
            let (before, after) = (first(&full, &user), first(&less, &user));
            if before == format!("t{gone}") {
                moved += 1;
            } else {
                prop_assert_eq!(before, after);
            }
        }
        prop_assert!(f64::from(moved) < 1.5 * f64::from(users) / count as f64, "{} of {} moved", moved, users);
    }
}
