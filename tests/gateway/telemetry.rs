//! Exact counts after scripted operations, and the lines of the access log.

use std::sync::Arc;
use std::time::Duration;

use rondo::core::api::Api;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::executor::effect::Next;
use rondo::executor::event::{Event, StreamEnd};
use rondo::ledger::store::Piece;
use rondo::ledger::{Book, Outbox};
use rondo::proxy::host::{Observer, Refusal};
use rondo::telemetry::{ReloadResult, refusal_line};

use crate::compiled::compiled;
use crate::world::{Does, World, YAML};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

fn counts(world: &World, expected: &[(&str, f64)]) {
    for (series, value) in expected {
        assert_eq!(world.value(series), Some(*value), "{series}");
    }
}

fn assert_balanced(world: &World) {
    let admissions = world.sum("rondo_exhaustion_admissions_total");
    assert_eq!(admissions, world.sum("rondo_exhaustion_ends_total"));
    assert_eq!(admissions, world.sum("rondo_exhaustion_waits_total"));
    let sends = world.sum("rondo_upstream_sends_total");
    let records = world.telemetry.recent(100, |_| true);
    let of_records: u32 = records.iter().map(|record| record.operation.sends).sum();
    assert_eq!(sends, f64::from(of_records));
    let attempts: usize = records.iter().map(|record| record.attempts.len()).sum();
    assert_eq!(world.sum("rondo_attempts_total"), attempts as f64);
    assert_eq!(world.sum("rondo_requests_total"), records.len() as f64);
    assert_eq!(
        world.sum("rondo_request_duration_seconds_count"),
        records.len() as f64
    );
}

// R-S21, R-S22, C180: a plain success, a failover, an exhaustion through both rounds, a cancel in the wait: each counter moves by exactly
// the expected amount, and the final exhaustion counts once, for the third alone.
#[test]
fn each_counter_moves_by_exactly_what_happened() {
    let mut world = World::new();
    let zeroes = [
        ("rondo_exhaustion_waits_total{route=\"gpt\"}", 0.0),
        ("rondo_route_exhaustions_total{route=\"gpt\"}", 0.0),
        (
            "rondo_exhaustion_suppressions_total{reason=\"deadline\",route=\"gpt\"}",
            0.0,
        ),
        (
            "rondo_upstream_sends_total{round=\"2\",route=\"gpt\",target=\"backup\"}",
            0.0,
        ),
    ];
    counts(&world, &zeroes);

    world.run(0, "one", &[Does::Answer]);
    world.run(0, "two", &[Does::Throttle, Does::Answer]);
    world.micros += 60_000_000;
    let third = world.run(0, "three", &[Does::Throttle; 4]);
    world.micros += 60_000_000;
    let mut fourth = world.start(0, "four");
    fourth.send(Does::Throttle);
    fourth.send(Does::Throttle);
    assert!(matches!(fourth.next, Next::Wait(_)));
    fourth.pass(SHORT);
    fourth.feed(Event::ClientGone);
    let fourth = fourth.end(499);

    assert_eq!(third.operation.state, State::Rejected);
    assert_eq!((third.operation.sends, third.operation.rounds), (4, 2));
    assert_eq!(
        (fourth.operation.state, fourth.operation.wait_ms),
        (State::Cancelled, 100)
    );
    let attempts = "rondo_attempts_total{decision=";
    let rejected = |decision: &str, round: u8, target: &str| {
        format!(
            "{attempts}\"{decision}\",outcome=\"rejected\",round=\"{round}\",route=\"gpt\",target=\"{target}\"}}"
        )
    };
    counts(
        &world,
        &[
            (
                "rondo_upstream_sends_total{round=\"1\",route=\"gpt\",target=\"primary\"}",
                4.0,
            ),
            (
                "rondo_upstream_sends_total{round=\"1\",route=\"gpt\",target=\"backup\"}",
                3.0,
            ),
            (
                "rondo_upstream_sends_total{round=\"2\",route=\"gpt\",target=\"primary\"}",
                1.0,
            ),
            (
                "rondo_upstream_sends_total{round=\"2\",route=\"gpt\",target=\"backup\"}",
                1.0,
            ),
            (&rejected("next_target", 1, "primary"), 3.0),
            (&rejected("stop", 1, "backup"), 2.0),
            (&rejected("next_target", 2, "primary"), 1.0),
            (&rejected("stop", 2, "backup"), 1.0),
            (
                "rondo_failovers_total{from=\"primary\",reason=\"throttle\",route=\"gpt\",to=\"backup\"}",
                4.0,
            ),
            ("rondo_exhaustion_waits_total{route=\"gpt\"}", 2.0),
            ("rondo_exhaustion_admissions_total{route=\"gpt\"}", 2.0),
            ("rondo_exhaustion_successes_total{route=\"gpt\"}", 0.0),
            (
                "rondo_exhaustion_ends_total{end=\"exhausted\",route=\"gpt\"}",
                1.0,
            ),
            (
                "rondo_exhaustion_ends_total{end=\"wait_client_gone\",route=\"gpt\"}",
                1.0,
            ),
            ("rondo_exhaustion_wait_seconds_count{route=\"gpt\"}", 2.0),
            ("rondo_route_exhaustions_total{route=\"gpt\"}", 1.0),
            (
                "rondo_requests_total{api=\"openai_chat\",outcome=\"exhausted\",route=\"gpt\",status=\"200\"}",
                1.0,
            ),
            (
                "rondo_requests_total{api=\"openai_chat\",outcome=\"cancelled\",route=\"gpt\",status=\"499\"}",
                1.0,
            ),
            ("rondo_inflight_requests", 0.0),
        ],
    );
    assert_eq!(world.sum("rondo_exhaustion_suppressions_total"), 0.0);
    assert_balanced(&world);
}

// C176: attempts = sends, and retries = sends - 1, for zero, one and two rejections before the answer.
#[test]
fn retries_are_sends_less_one() {
    let cases: [&[Does]; 3] = [
        &[Does::Answer],
        &[Does::Throttle, Does::Answer],
        &[Does::Throttle, Does::Throttle, Does::Answer],
    ];
    for (retries, script) in cases.into_iter().enumerate() {
        let mut world = World::new();
        let record = world.run(0, "op", script);
        assert_eq!(record.operation.sends as usize, retries + 1);
        assert_eq!(record.attempts.len(), retries + 1);
        assert_eq!(
            world.sum("rondo_upstream_sends_total"),
            (retries + 1) as f64
        );
        let successes = world.sum("rondo_exhaustion_successes_total");
        assert_eq!(successes, if retries == 2 { 1.0 } else { 0.0 });
        assert_balanced(&world);
    }
}

// C177: without a second round in the configuration nothing is suppressed, waited for or counted as retried.
#[test]
fn what_is_not_configured_is_not_counted() {
    let mut world = World::new();
    let record = world.run(1, "op", &[Does::Throttle]);
    assert_eq!(
        (record.operation.state, record.operation.sends),
        (State::Rejected, 1)
    );
    for family in ["waits", "admissions", "ends", "suppressions"] {
        assert_eq!(world.sum(&format!("rondo_exhaustion_{family}_total")), 0.0);
    }
    assert_eq!(world.sum("rondo_provider_retries_total"), 0.0);
    assert_eq!(
        world.value("rondo_route_exhaustions_total{route=\"plain\"}"),
        Some(1.0)
    );
    assert_balanced(&world);
}

// C179: a try on the same key is a retry and no change of target.
#[test]
fn tries_on_the_same_target_count_by_the_status_before() {
    let mut world = World::new();
    let record = world.run(1, "op", &[Does::Break, Does::Break, Does::Answer]);
    let retries: Vec<_> = record
        .attempts
        .iter()
        .map(|attempt| attempt.retry_index)
        .collect();
    assert_eq!(retries, [0, 1, 2]);
    let series = "rondo_provider_retries_total{route=\"plain\",status=\"500\",target=\"only\"}";
    counts(&world, &[(series, 2.0)]);
    assert_eq!(world.sum("rondo_failovers_total"), 0.0);
    assert_balanced(&world);
}

// C178, R-S23: one client row and one row per attempt, linked by the id.
#[test]
fn one_client_row_and_one_row_per_attempt() {
    let book = Arc::new(Book::new(Some(Outbox::default())));
    let mut world = World::with(Arc::clone(&book));
    world.run(0, "op", &[Does::Break, Does::Answer]);
    let pieces = book.collect();
    let [Piece::Live(record)] = &pieces[..] else {
        panic!("{pieces:?}")
    };
    assert_eq!(&*record.operation.operation_id, "op");
    let ids: Vec<&str> = record
        .attempts
        .iter()
        .map(|row| &*row.operation_id)
        .collect();
    assert_eq!(ids, ["op", "op"]);
    assert_eq!(world.sum("rondo_requests_total"), 1.0);
    assert_balanced(&world);
}

// R-S22: every end of a wait and of a second round has its own label, and the labels sum up to the admissions.
#[test]
fn every_end_of_what_was_admitted_is_counted_once() {
    let mut world = World::new();
    let ends = [
        (Event::ClientGone, "wait_client_gone"),
        (Event::ShutdownBegun, "wait_shutdown"),
        (Event::DeadlinePassed, "wait_deadline"),
        (Event::Dropped, "wait_dropped"),
    ];
    for (event, end) in ends.clone() {
        world.micros += 60_000_000;
        let mut running = world.start(0, end);
        running.send(Does::Throttle);
        running.send(Does::Throttle);
        running.pass(SHORT);
        running.feed(event);
        running.finish();
    }
    for (script, end) in [(Does::Answer, "success"), (Does::Break, "other")] {
        world.micros += 60_000_000;
        world.run(0, end, &[Does::Throttle, Does::Throttle, script]);
    }
    world.micros += 60_000_000;
    let mut skipped = world.start(0, "exhausted");
    skipped.send(Does::Throttle);
    skipped.send(Does::Throttle);
    skipped.cool(LONG);
    skipped.elapse();
    skipped.feed(Event::StreamEnded(StreamEnd::Complete));
    skipped.finish();
    let all = ends.map(|(_, end)| end).into_iter();
    for end in all.chain(["success", "other", "exhausted"]) {
        let series = format!("rondo_exhaustion_ends_total{{end=\"{end}\",route=\"gpt\"}}");
        counts(&world, &[(&series, 1.0)]);
    }
    let skipped = "rondo_candidates_skipped_total{round=\"2\",route=\"gpt\",target=\"primary\"}";
    counts(&world, &[(skipped, 1.0)]);
    assert_balanced(&world);
}

// R-S21: a suppressed round has exactly one reason.
#[test]
fn a_suppression_counts_under_its_reason() {
    let mut world = World::new();
    let mut running = world.start(0, "op");
    running.send(Does::Throttle);
    running.send(Does::Break);
    running.finish();
    let series = "rondo_exhaustion_suppressions_total{reason=\"not_throttled\",route=\"gpt\"}";
    counts(&world, &[(series, 1.0)]);
    assert_eq!(world.sum("rondo_exhaustion_suppressions_total"), 1.0);
    assert_balanced(&world);
}

#[test]
fn gauges_are_read_at_the_scrape() {
    let mut world = World::new();
    let held = world.buffered.reserve(4096, u64::MAX).unwrap();
    let mut running = world.start(0, "op");
    running.send(Does::Throttle);
    running.send(Does::Throttle);
    // Asleep; the world is borrowed by the operation, so it is looked at through its parts.
    let text = running.render();
    for line in [
        "rondo_exhaustion_waiting{route=\"gpt\"} 1",
        "rondo_buffered_bytes 4096",
        "rondo_inflight_requests 1",
        "rondo_build_info{version=\"0.1.0\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    running.feed(Event::Dropped);
    running.end(499);
    drop(held);
    let waiting = "rondo_exhaustion_waiting{route=\"gpt\"}";
    counts(&world, &[(waiting, 0.0), ("rondo_buffered_bytes", 0.0)]);
    if cfg!(target_os = "linux") {
        assert!(world.value("process_resident_memory_bytes").unwrap() > 0.0);
    }
}

#[test]
fn refusals_are_counted_and_written_on_one_line() {
    let world = World::new();
    let mut refusal = Refusal {
        id: Arc::from("a b\"\n"),
        route: None,
        api: None,
        status: 404,
        code: "model_not_found",
        overload: None,
        latency: Duration::from_millis(3),
    };
    world.telemetry.refused(&refusal);
    let line = refusal_line(&refusal, OperationOutcome::Rejected);
    assert!(
        line.starts_with(r#"request="a b\"\n" route=- api=none"#),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
    refusal.route = Some(Arc::from("gpt"));
    refusal.api = Some(Api::OpenaiChat);
    refusal.status = 499;
    world.telemetry.refused(&refusal);
    counts(
        &world,
        &[
            (
                "rondo_requests_total{api=\"none\",outcome=\"rejected\",route=\"none\",status=\"404\"}",
                1.0,
            ),
            (
                "rondo_requests_total{api=\"openai_chat\",outcome=\"cancelled\",route=\"gpt\",status=\"499\"}",
                1.0,
            ),
        ],
    );
}

#[test]
fn an_upstream_status_out_of_range_opens_no_series_of_its_own() {
    let mut world = World::new();
    for status in [0, 99, 600, 65_535] {
        let mut running = world.start(0, &format!("op-{status}"));
        running.send(Does::Answer);
        running.feed(Event::StreamEnded(StreamEnd::Complete));
        running.end(status);
    }
    let series = "rondo_requests_total{api=\"openai_chat\",outcome=\"succeeded\",route=\"gpt\",status=\"none\"}";
    counts(&world, &[(series, 4.0)]);
}

// R-C2: operations in flight count on the same series as those of the new snapshot, however many reloads came between.
#[test]
fn operations_of_old_snapshots_still_count() {
    let mut world = World::new();
    let telemetry = Arc::clone(&world.telemetry);
    let before = Arc::clone(&world.snapshot);
    let mut running = world.start(0, "old");
    for generation in 2..=20 {
        let yaml = YAML.replace("plain-x", &format!("plain-{generation}"));
        let next = compiled(&yaml, Some(&before));
        let mut next = Arc::try_unwrap(next).unwrap();
        next.generation = generation;
        telemetry.adopt(&Arc::new(next), ReloadResult::Success);
    }
    telemetry.adopt(&before, ReloadResult::Failure);
    running.send(Does::Answer);
    running.finish();
    counts(
        &world,
        &[
            (
                "rondo_upstream_sends_total{round=\"1\",route=\"gpt\",target=\"primary\"}",
                1.0,
            ),
            ("rondo_config_reloads_total{result=\"success\"}", 19.0),
            ("rondo_config_reloads_total{result=\"failure\"}", 1.0),
        ],
    );
    assert_eq!(world.sum("rondo_config_info"), 1.0);
    assert_balanced(&world);
}

// R-S22, R-C2: a failover counts under the names that its targets have, whatever their order is in the snapshot of the operation.
#[test]
fn failovers_keep_their_names_when_targets_change_places() {
    let mut world = World::new();
    world.run(0, "before", &[Does::Throttle, Does::Answer]);
    let (first, second) = (
        "- { name: primary, provider: acme }",
        "- { name: backup, provider: acme, model: gpt-prod }",
    );
    let swapped = YAML.replace(first, "-").replace(second, first).replacen(
        "      -\n",
        &format!("      {second}\n"),
        1,
    );
    let mut next = Arc::try_unwrap(compiled(&swapped, Some(&world.snapshot))).unwrap();
    next.generation = 2;
    world.snapshot = Arc::new(next);
    world
        .telemetry
        .adopt(&world.snapshot, ReloadResult::Success);
    world.micros += 60_000_000;
    world.run(0, "after", &[Does::Throttle, Does::Answer]);
    let failover = |from: &str, to: &str| {
        format!(
            "rondo_failovers_total{{from=\"{from}\",reason=\"throttle\",route=\"gpt\",to=\"{to}\"}}"
        )
    };
    counts(
        &world,
        &[
            (&failover("primary", "backup"), 1.0),
            (&failover("backup", "primary"), 1.0),
        ],
    );
    assert_balanced(&world);
}
