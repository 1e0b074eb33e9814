//! Who is tried for a request, in which order, on which keys: one table a policy.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::api::{Api, ApiSet};
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::Executor;
use rondo::executor::event::Event;
use rondo::executor::plan::Plan;
use rondo::policy::cooldown::AsideReason;
use rondo::policy::ordering::Why;
use rondo::policy::routing::FailureRules;
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;
use crate::support::ms;
use crate::support::ordered::{Ask, fully, told};
use crate::support::reports::named;

/// Three OpenAI-like providers and one of Anthropic, two keys each; `north` and `south` with what is said of their keys and targets.
fn world(keys: [&str; 4], targets: [&str; 2], routing: &str, rest: &str) -> Arc<Snapshot> {
    let [nk1, nk2, sk1, sk2] = keys;
    let [north, south] = targets;
    compiled(
        &format!(
            "
providers:
  north:
    adapter: openai
    base_url: 'http://north.example'
    keys: [{{ name: k1, secret: {{ literal: a }}{nk1} }}, {{ name: k2, secret: {{ literal: b }}{nk2} }}]
  south:
    adapter: openai
    base_url: 'http://south.example'
    keys: [{{ name: k1, secret: {{ literal: c }}{sk1} }}, {{ name: k2, secret: {{ literal: d }}{sk2} }}]
  claude: {{ adapter: anthropic, base_url: 'http://claude.example', keys: [{{ name: k1, secret: {{ literal: e }} }}] }}
routes:
  - name: chat
    models: [m, n]
    targets:
      - {{ name: north, provider: north{north} }}
      - {{ name: south, provider: south{south} }}
      - {{ name: claude, provider: claude }}
    routing: {{ {routing} }}
client_keys: {{ keys: [{{ name: app, secret: {{ literal: app-key }} }}, {{ name: batch, secret: {{ literal: batch-key }} }}] }}
{rest}
ledger: {{ store: off }}
"
        ),
        None,
    )
}

const NOTHING: [&str; 4] = ["", "", "", ""];

#[track_caller]
fn check(snapshot: &Snapshot, ask: &Ask<'_>, expected: &str) {
    assert_eq!(told(snapshot, ask, 1), expected);
}

// R-F6 R-F8: without a word the order is that of the file.
#[test]
fn the_order_of_the_file_is_the_default() {
    let snapshot = world(NOTHING, ["", ""], "", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    let claude = Ask::of("m").api(Api::AnthropicMessages);
    check(
        &snapshot,
        &claude,
        "claude:k1 -north/api_format -south/api_format",
    );
    let alone = world(NOTHING, ["", ""], "mode: primary_only", "");
    check(
        &alone,
        &Ask::of("m"),
        "north:k1,k2 -south/primary_only -claude/primary_only",
    );
    check(
        &alone,
        &claude,
        "-north/api_format -south/primary_only -claude/primary_only",
    );
}

#[test]
fn targets_stand_by_their_priority() {
    let snapshot = world(NOTHING, [", priority: 5", ""], "", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "south:k1,k2 north:k1,k2 -claude/api_format",
    );
    let alone = world(NOTHING, [", priority: 5", ""], "mode: primary_only", "");
    check(
        &alone,
        &Ask::of("m"),
        "south:k1,k2 -north/primary_only -claude/primary_only",
    );
}

#[test]
fn keys_stand_by_their_priority_in_their_pool() {
    let keys = [", priority: 9", "", ", priority: 1", ", priority: 1"];
    let snapshot = world(keys, ["", ""], "", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k2,k1 south:k1,k2 -claude/api_format",
    );
}

// One key serves two formats with opposite priorities.
#[test]
fn a_format_can_have_priorities_of_its_own() {
    let keys = [
        ", priority_by_api: { openai_chat: 5, openai_embeddings: 0 }",
        ", priority_by_api: { openai_chat: 0, openai_embeddings: 5 }",
        "",
        "",
    ];
    let snapshot = world(keys, ["", ""], "", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k2,k1 south:k1,k2 -claude/api_format",
    );
    let embeddings = Ask::of("m").api(Api::OpenaiEmbeddings);
    check(
        &snapshot,
        &embeddings,
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    // A format that is not listed has the general priority.
    let responses = Ask::of("m").api(Api::OpenaiResponses);
    check(
        &snapshot,
        &responses,
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
}

// R-B2: with `global_key` each place of a target is a candidate.
#[test]
fn global_key_orders_keys_over_targets() {
    let keys = ["", ", priority: 2", ", priority: 1", ", priority: 2"];
    let snapshot = world(keys, ["", ""], "priority_mode: global_key", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k1 south:k1 north:k2 south:k2 -claude/api_format",
    );
    // Ties: the order of targets, then of keys; consecutive pairs of one target are one pool.
    let snapshot = world(NOTHING, ["", ""], "priority_mode: global_key", "");
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    let snapshot = world(
        ["", ", priority: 1", "", ""],
        [", priority: 5", ""],
        "priority_mode: global_key",
        "",
    );
    check(
        &snapshot,
        &Ask::of("m"),
        "south:k1,k2 north:k1 north:k2 -claude/api_format",
    );
}

// The gateway converts nothing yet; the order is ready for it.
#[test]
fn a_conversion_ranks_behind_unless_it_keeps_its_place() {
    let ask = Ask {
        conversions: ApiSet::of(&[Api::AnthropicMessages]),
        ..Ask::of("m")
    };
    let late = [", priority: 3", ", priority: 3"];
    let snapshot = world(NOTHING, late, "", "");
    check(&snapshot, &ask, "north:k1,k2 south:k1,k2 claude:k1");
    let snapshot = world(NOTHING, late, "keep_priority_on_conversion: true", "");
    check(&snapshot, &ask, "claude:k1 north:k1,k2 south:k1,k2");
}

#[test]
fn keys_are_left_out_by_model_and_time() {
    let keys = [", models: [gpt-4*]", ", expires: 2027-01-31", "", ""];
    let snapshot = world(keys, ["", ", model: gpt-x"], "", "");
    // 2027-01-15 and a month later.
    let (before, after) = (1_800_000_000_000_000, 1_802_600_000_000_000);
    let at = |micros| Ask {
        wall: WallTime::from_unix_micros(micros),
        ..Ask::of("m")
    };
    check(
        &snapshot,
        &at(before),
        "north:k2 south:k1,k2 -claude/api_format north.k1/models",
    );
    check(
        &snapshot,
        &at(after),
        "south:k1,k2 -north/key_models -claude/api_format north.k1/models north.k2/expired",
    );
    // The upstream's name counts where there is one.
    let snapshot = world(
        [", models: [gpt-4*]", "", "", ""],
        [", model: gpt-4o", ""],
        "",
        "",
    );
    check(
        &snapshot,
        &at(before),
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
}

// R-F8: tokens are counted by the provider that would be asked.
#[test]
fn token_counts_stay_with_the_first_in_order() {
    let snapshot = world(NOTHING, [", priority: 5", ""], "", "");
    let ask = Ask {
        counts: true,
        ..Ask::of("m")
    };
    check(
        &snapshot,
        &ask,
        "south:k1,k2 -north/other_tokenizer -claude/api_format",
    );
}

#[test]
fn rules_apply_in_order_until_one_stops() {
    let rules = "rules:
  - { name: late, priority: 9, when: { stream: true }, actions: [{ set_target_priority: { target: north, priority: 0 } }] }
  - name: tenant
    when: { header: { name: X-Tenant, value: acme } }
    actions:
      - set_target_priority: { target: north, priority: 3 }
      - set_key_priority: { key: k1, provider: south, priority: 4 }
  - { name: stop-here, priority: 5, when: { header: { name: x-stop, present: true } }, stop: true }
  - { name: off, enabled: false, actions: [{ restrict_targets: [claude] }] }
  - { name: other-model, when: { model: n }, actions: [{ set_target_priority: { target: north, priority: 1 } }] }
  - { name: embeddings, when: { api: openai_embeddings }, actions: [{ restrict_targets: [south] }] }
  - { name: batch, when: { client_key: batch }, actions: [{ restrict_targets: [south, claude] }] }
  - { name: beta, when: { header: { name: x-mode, prefix: be } }, actions: [{ restrict_targets: [north] }] }";
    let snapshot = world(NOTHING, ["", ""], "", rules);
    let plain = "north:k1,k2 south:k1,k2 -claude/api_format";
    check(&snapshot, &Ask::of("m"), plain);
    let tenant = || Ask::of("m").header("x-tenant", "acme");
    check(
        &snapshot,
        &tenant(),
        "south:k2,k1 north:k1,k2 -claude/api_format",
    );
    check(&snapshot, &Ask::of("m").header("x-tenant", "acm"), plain);
    // The later rule wins over the earlier, unless one in between stops.
    let streaming = Ask {
        stream: true,
        ..tenant()
    };
    check(
        &snapshot,
        &streaming,
        "north:k1,k2 south:k2,k1 -claude/api_format",
    );
    let stopped = streaming.header("x-stop", "");
    check(
        &snapshot,
        &stopped,
        "south:k2,k1 north:k1,k2 -claude/api_format",
    );
    check(
        &snapshot,
        &Ask::of("n"),
        "south:k1,k2 north:k1,k2 -claude/api_format",
    );
    let embeddings = Ask::of("m").api(Api::OpenaiEmbeddings);
    check(
        &snapshot,
        &embeddings,
        "south:k1,k2 -north/restricted -claude/restricted",
    );
    let batch = Ask::of("m").client("batch");
    check(
        &snapshot,
        &batch,
        "south:k1,k2 -north/restricted -claude/api_format",
    );
    // Restrictions narrow together, to nothing if need be.
    let nothing = Ask::of("m").client("batch").header("x-mode", "beta");
    check(
        &snapshot,
        &nothing,
        "-north/restricted -south/restricted -claude/restricted",
    );
}

#[test]
fn rules_set_modes_and_tries() {
    let rules = "rules:
  - name: by-key
    when: { header: { name: x-by, value: key } }
    actions: [{ set_scheduling: { priority_mode: global_key, sticky_key_attempts: 0 } }]";
    let snapshot = world(
        ["", ", priority: 2", ", priority: 1", ""],
        ["", ""],
        "",
        rules,
    );
    check(
        &snapshot,
        &Ask::of("m"),
        "north:k1,k2 south:k2,k1 -claude/api_format",
    );
    let by_key = Ask::of("m").header("x-by", "key");
    check(
        &snapshot,
        &by_key,
        "north:k1 south:k2 south:k1 north:k2 -claude/api_format",
    );
    assert_eq!(fully(&snapshot, &by_key, 1).ordered.sticky_tries, 1);
    assert_eq!(fully(&snapshot, &Ask::of("m"), 1).ordered.sticky_tries, 2);
}

/// Says that the candidate at this place gave a good answer.
fn served(snapshot: &Snapshot, ask: &Ask<'_>, place: usize) {
    let full = fully(snapshot, ask, 1);
    let candidate = &full.ordered.candidates[place];
    let target = &snapshot.route(ask.model).unwrap().targets[candidate.target];
    let pin = full.ordered.pin.as_ref().expect("nothing is remembered");
    pin.keep(target, &target.keys[candidate.keys[0]], ask.now);
}

const WARM: &str = "scheduling_mode: cache_affinity";

#[test]
fn the_last_good_candidate_goes_first_for_its_client() {
    let snapshot = world(NOTHING, ["", ""], WARM, "");
    let app = || Ask::of("m").client("app");
    let (plain, moved) = (
        "north:k1,k2 south:k1,k2 -claude/api_format",
        "south:k1,k2 north:k1,k2 -claude/api_format",
    );
    check(&snapshot, &app(), plain);
    served(&snapshot, &app(), 1);
    check(&snapshot, &app(), moved);
    assert_eq!(
        fully(&snapshot, &app(), 1).ordered.candidates[0].place.why,
        Why::Affinity
    );
    // Another client, model or format knows nothing of it; neither does one without a name.
    check(&snapshot, &Ask::of("m").client("batch"), plain);
    check(&snapshot, &Ask::of("n").client("app"), plain);
    check(&snapshot, &app().api(Api::OpenaiResponses), plain);
    check(&snapshot, &Ask::of("m"), plain);
    assert!(fully(&snapshot, &Ask::of("m"), 1).ordered.pin.is_none());
    // Five minutes, like prompt caches.
    let later = |micros: u64| Ask {
        now: MonoTime::from_micros(1_000_000 + micros),
        ..app()
    };
    check(&snapshot, &later(299_999_999), moved);
    check(&snapshot, &later(300_000_000), plain);
}

#[test]
fn affinity_is_repaired_and_never_pins_to_what_cools() {
    let snapshot = world(NOTHING, ["", ""], WARM, "");
    let app = Ask::of("m").client("app");
    served(&snapshot, &app, 1);
    let south = &snapshot.routes[0].targets[1];
    south.keys[0].cooldown.extend(app.now.after(ms(500)));
    check(
        &snapshot,
        &app,
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    let later = Ask {
        now: app.now.after(ms(500)),
        ..app.clone()
    };
    check(
        &snapshot,
        &later,
        "south:k1,k2 north:k1,k2 -claude/api_format",
    );
    // What other operations found failing is no better than what cools.
    let cooldown = &south.keys[0].cooldown;
    let rules = FailureRules {
        count: 1,
        within: ms(1),
        cooldown: ms(1),
    };
    cooldown.strike(cooldown.seen(later.now), &rules, later.now);
    check(
        &snapshot,
        &later,
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    let later = Ask {
        now: later.now.after(ms(1)),
        ..later
    };
    let pin = fully(&snapshot, &later, 1).ordered.pin.unwrap();
    // A failure elsewhere changes nothing; one there does.
    let north = &snapshot.routes[0].targets[0];
    pin.forget(north, &north.keys[0]);
    check(
        &snapshot,
        &later,
        "south:k1,k2 north:k1,k2 -claude/api_format",
    );
    pin.forget(south, &south.keys[0]);
    check(
        &snapshot,
        &later,
        "north:k1,k2 south:k1,k2 -claude/api_format",
    );
    // The key of the good answer goes first in its pool.
    pin.keep(south, &south.keys[1], later.now);
    check(
        &snapshot,
        &later,
        "south:k2,k1 north:k1,k2 -claude/api_format",
    );
}

// R-F8: the state is at the account of the last good answer, whatever keeps others away from it.
#[test]
fn what_is_bound_goes_to_its_account_though_it_cools() {
    let snapshot = world(NOTHING, ["", ""], WARM, "");
    let app = Ask::of("m").client("app");
    let bound = Ask {
        bound: true,
        ..app.clone()
    };
    served(&snapshot, &app, 1);
    let key = &snapshot.routes[0].targets[1].keys[0];
    let until = app.now.after(ms(500));
    for rests in [true, false] {
        match rests {
            true => key.cooldown.extend(until),
            false => key.aside.extend(AsideReason::Quota, until),
        }
        check(
            &snapshot,
            &app,
            "north:k1,k2 south:k1,k2 -claude/api_format",
        );
        check(
            &snapshot,
            &bound,
            "south:k1,k2 north:k1,k2 -claude/api_format",
        );
        key.cooldown.end(key.cooldown.seen(until));
    }
}

// A throttle is remembered as a cooldown, and state stays where it is; any other failure lets the next request go by order.
#[test]
fn a_throttle_and_what_is_bound_forget_nothing() {
    for (failure, bound, stays) in [
        ("429/100", false, true),
        ("429/100", true, true),
        ("500", false, false),
        ("500", true, true),
    ] {
        let snapshot = world(NOTHING, ["", ""], WARM, "");
        let ask = Ask {
            bound,
            ..Ask::of("m").client("app")
        };
        served(&snapshot, &ask, 1);
        let ordered = fully(&snapshot, &ask, 1).ordered;
        let pin = ordered.pin.clone().unwrap();
        let plan = Plan {
            route: Arc::clone(&snapshot.routes[0]),
            candidates: ordered.candidates,
            sticky_tries: 1,
            pin: ordered.pin,
            binding: bound.then_some("previous_response_id"),
            caller_retry: false,
            caller_owns_retries: true,
            began: ask.now,
            deadline: ask.now.after(ms(60_000)),
            tokens: 0,
            held_bytes: 0,
        };
        let mut executor = Executor::new(plan);
        let mut chance = SmallRng::seed_from_u64(1);
        for event in [
            Event::Admitted,
            Event::SendBegun,
            Event::Outcome(named(failure)),
        ] {
            let _ = executor.handle(ask.now, event, &mut chance);
        }
        let remembered = pin.recall(ask.now).is_some();
        assert_eq!(remembered, stays, "{failure}, bound: {bound}");
    }
}

// R-C2
#[test]
fn affinity_survives_a_reload_where_the_target_is_left() {
    let text = |targets: &str| {
        format!(
            "
providers:
  north: {{ adapter: openai, base_url: 'http://north.example' }}
  south: {{ adapter: openai, base_url: 'http://south.example' }}
routes: [{{ name: chat, models: [m], targets: [{targets}], routing: {{ {WARM} }} }}]
client_keys: {{ keys: [{{ name: app, secret: {{ literal: app-key }} }}] }}
ledger: {{ store: off }}
"
        )
    };
    let (north, south) = (
        "{ name: north, provider: north }",
        "{ name: south, provider: south }",
    );
    let app = Ask::of("m").client("app");
    let first = compiled(&text(&format!("{north}, {south}")), None);
    served(&first, &app, 1);
    let swapped = "{ name: new, provider: north }, { name: north, provider: north }, ";
    let second = compiled(&text(&format!("{swapped}{south}")), Some(&first));
    check(&second, &app, "south:- new:- north:-");
    let third = compiled(
        &text(&format!("{north}, {{ name: other, provider: south }}")),
        Some(&second),
    );
    check(&third, &app, "north:- other:-");
}

// R-F8: what is bound to a provider's state is not drawn.
#[test]
fn a_bound_request_meets_no_draw() {
    let snapshot = world(NOTHING, ["", ""], "scheduling_mode: load_balance", "");
    let ask = Ask {
        bound: true,
        ..Ask::of("m")
    };
    for seed in 0..50 {
        assert_eq!(
            told(&snapshot, &ask, seed),
            "north:k1,k2 south:k1,k2 -claude/api_format"
        );
    }
}

// A route with one fixed order has it prepared: asking twice gives the very same list.
#[test]
fn a_fixed_order_is_prepared() {
    let snapshot = world(NOTHING, [", priority: 5", ""], "", "");
    let ask = Ask::of("m");
    let prepared = snapshot.routes[0].prepared[Api::OpenaiChat as usize].as_ref();
    let prepared = prepared.expect("nothing is prepared");
    assert_eq!(**prepared, *fully(&snapshot, &ask, 1).ordered.candidates);
    for (index, api) in Api::ALL.into_iter().enumerate() {
        assert_eq!(index, api as usize, "prepared orders are found by position");
    }
    for routing in [WARM, "scheduling_mode: load_balance", "hash_on: client_key"] {
        assert!(
            world(NOTHING, ["", ""], routing, "").routes[0]
                .prepared
                .is_empty()
        );
    }
    let expiring = [", expires: 2031-01-01", "", "", ""];
    assert!(
        world(expiring, ["", ""], "", "").routes[0]
            .prepared
            .is_empty()
    );
}
