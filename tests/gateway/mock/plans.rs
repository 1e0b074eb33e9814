//! Which answer comes next: lists, models, operations, windows, a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rondo::mock::{Clock, MockServer, Place, Plan, Question, Recorder, Setup};

use super::{CHAT, HELLO, listener, post, script};

/// The indexes that a plan gives to so many questions.
fn indexes(plan: &mut Plan, count: usize) -> Vec<usize> {
    (0..count)
        .map(|_| plan.next(Question::default()).place.index())
        .collect()
}

fn labels(text: &str, count: usize) -> Vec<String> {
    let mut plan = Plan::new(Arc::new(script(text)));
    (0..count)
        .map(|_| plan.next(Question::default()).answer.label.to_string())
        .collect()
}

#[test]
fn lists_loop_or_stay_at_their_last_answer() {
    let entries = "answers: [{preset: ok, times: 2}, hang]";
    let mut plan = Plan::new(Arc::new(script(entries)));
    assert_eq!(indexes(&mut plan, 7), [0, 0, 1, 0, 0, 1, 0]);
    let mut plan = Plan::new(Arc::new(script(&format!("loop: false\n{entries}"))));
    assert_eq!(indexes(&mut plan, 5), [0, 0, 1, 1, 1]);
}

#[test]
fn probabilities_are_seeded_and_repeatable() {
    let text = "answers: [{choose: [{p: 0.3, answer: throttle}, {p: 0.7, answer: ok}]}]";
    let seven = labels(&format!("seed: 7\n{text}"), 1000);
    assert_eq!(seven, labels(&format!("seed: 7\n{text}"), 1000));
    assert_ne!(seven, labels(&format!("seed: 8\n{text}"), 1000));
    let throttles = seven.iter().filter(|label| *label == "throttle").count();
    assert!((250..350).contains(&throttles), "{throttles}");
    let never = "answers: [{choose: [{p: 1, answer: ok}, {p: 0, answer: hang}]}]";
    assert!(labels(never, 1000).iter().all(|label| label == "ok"));
    let thirds = "answers: [{choose: [{p: 0.333333333, answer: ok}, {p: 0.333333333, answer: hang}, {p: 0.333333334, answer: reset}]}]";
    assert_eq!(labels(thirds, 100).len(), 100);
}

#[test]
fn drawn_delays_stay_inside_their_bounds() {
    let mut plan = Plan::new(Arc::new(script(
        "delay_ms: [10, 50]\nanswers: [ok, {preset: ok, delay_ms: 3}]",
    )));
    for _ in 0..200 {
        let drawn = plan.next(Question::default()).delay.as_millis();
        assert!((10..=50).contains(&drawn), "{drawn}");
        assert_eq!(plan.next(Question::default()).delay.as_millis(), 3);
    }
}

#[test]
fn models_have_lists_of_their_own() {
    let text = "
answers: [ok]
models:
  'gpt-4o': {answers: [throttle, hang], loop: false}
  'gpt-*': {answers: [reset]}";
    let mut plan = Plan::new(Arc::new(script(text)));
    let mut ask = |model| {
        let chosen = plan.next(Question {
            model,
            ..Question::default()
        });
        (chosen.answer.label.to_string(), chosen.place)
    };
    let exact = |index| Place::Model(Arc::from("gpt-4o"), index);
    assert_eq!(ask("gpt-4o"), ("throttle".to_owned(), exact(0)));
    assert_eq!(ask("claude"), ("ok".to_owned(), Place::Answers(0)));
    assert_eq!(ask("gpt-4o"), ("hang".to_owned(), exact(1)));
    assert_eq!(ask("gpt-4o"), ("hang".to_owned(), exact(1)));
    assert_eq!(
        ask("gpt-5"),
        ("reset".to_owned(), Place::Model(Arc::from("gpt-*"), 0))
    );
}

#[test]
fn every_operation_can_begin_the_list_anew() {
    let mut plan = Plan::new(Arc::new(script(
        "order: request_id\nloop: false\nanswers: [throttle, ok]",
    )));
    let mut ask = |request_id| {
        plan.next(Question {
            request_id,
            ..Question::default()
        })
        .place
        .index()
    };
    assert_eq!(
        [ask("a"), ask("b"), ask("a"), ask("b"), ask("a"), ask("c")],
        [0, 0, 1, 1, 1, 0]
    );
}

#[test]
fn windows_open_and_close_by_the_given_time() {
    let text = "
answers: [ok]
windows:
  - {every_ms: 10000, from_ms: 0, to_ms: 3000, answer: throttle}
  - {from_ms: 4000, to_ms: 5000, answer: hang}";
    let mut plan = Plan::new(Arc::new(script(text)));
    let table = [
        (0, "throttle"),
        (2_999, "throttle"),
        (3_000, "ok"),
        (4_000, "hang"),
        (5_000, "ok"),
        (10_000, "throttle"),
        (14_500, "ok"),
    ];
    for (millis, label) in table {
        let elapsed = Duration::from_millis(millis);
        let chosen = plan.next(Question {
            elapsed,
            ..Question::default()
        });
        assert_eq!(&*chosen.answer.label, label, "{millis}");
    }
}

#[tokio::test]
async fn a_server_follows_the_clock_it_is_given() {
    let now = Arc::new(AtomicU64::new(0));
    let setup = Setup {
        recorder: Recorder::default(),
        clock: Clock::Manual(Arc::clone(&now)),
    };
    let text = "windows: [{from_ms: 1000, to_ms: 2000, answer: throttle}]";
    let runtime = tokio::runtime::Handle::current();
    let server = MockServer::start_in(&runtime, "m", script(text), listener(), setup).unwrap();
    for (millis, status) in [(999, 200), (1000, 429), (2000, 200)] {
        now.store(millis, Ordering::SeqCst);
        assert_eq!(post(server.addr(), CHAT, HELLO).await.status, status);
    }
}
