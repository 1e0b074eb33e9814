//! How a record reads: as JSON, in a list, as a story. And what may be asked.

use std::sync::Arc;
use std::time::Duration;

use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::decision::{Decision, Round, Stop};
use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::StoredRecord;
use rondo::ledger::entry::Capture;
use rondo::ledger::store::{Sum, SumBy};
use rondo::ledger::{AttemptEntry, OperationEntry, Record};
use rondo::records::ask::{self, Since};
use rondo::records::json::{RecordView, SumView};
use rondo::records::{list, story, sums};
use serde_json::{Value, json};

const START: i64 = 1_767_225_600_000_000;

fn wall(micros: i64) -> WallTime {
    WallTime::from_unix_micros(START + micros)
}

/// An operation that has just begun.
pub fn begun(sequence: u64, id: &str, started_at: WallTime) -> Record {
    Record {
        sequence,
        operation: OperationEntry {
            operation_id: Arc::from(id),
            boot_id: Arc::from("b00t"),
            route: Arc::from("gpt"),
            api: Api::OpenaiChat,
            public_model: Arc::from("gpt-4o"),
            stream: true,
            state: State::Pending,
            http_status: None,
            error_class: None,
            reason: "",
            client_key: None,
            started_at,
            first_byte_at: None,
            finished_at: None,
            latency_ms: None,
            wait_ms: 0,
            sends: 0,
            rounds: 1,
            request_bytes: 67,
            response_bytes: 0,
            request_capture: Capture::Complete,
            response_capture: Capture::Absent,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            reasoning_tokens: None,
            profile: "default".into(),
            usage_partial: None,
        },
        attempts: Vec::new(),
        delivered_by: None,
    }
}

fn attempt(attempt_no: u32, target: &str) -> AttemptEntry {
    AttemptEntry {
        operation_id: Arc::from("op-1"),
        attempt_no,
        round: Round::First,
        candidate_index: 0,
        retry_index: 0,
        target: Arc::from(target),
        provider: Arc::from("acme"),
        key_name: Some(Arc::from("main")),
        upstream_model: Arc::from("gpt-prod"),
        state: State::Pending,
        delivery: None,
        class: None,
        certified: false,
        decision: None,
        http_status: None,
        error_class: None,
        upstream_request_id: None,
        retry_after_ms: None,
        started_at: wall(1_000),
        first_byte_at: None,
        finished_at: None,
        latency_ms: None,
    }
}

/// Throttled at north, then cut short at south.
fn broken() -> StoredRecord {
    let mut record = begun(7, "op-1", wall(0));
    let operation = &mut record.operation;
    operation.state = State::Failed;
    operation.http_status = Some(200);
    operation.error_class = Some(Class::Transport);
    operation.reason = "output_seen";
    operation.first_byte_at = Some(wall(30_000));
    operation.finished_at = Some(wall(12_345_678));
    operation.latency_ms = Some(12_345);
    operation.wait_ms = 1_250;
    operation.sends = 2;
    operation.rounds = 2;
    operation.response_bytes = 419;
    operation.response_capture = Capture::Partial;
    operation.prompt_tokens = Some(12);
    operation.completion_tokens = Some(3);
    operation.usage_partial = Some(true);
    let mut north = attempt(1, "north");
    north.state = State::Rejected;
    north.delivery = Some("rejected");
    north.class = Some(Class::Throttle);
    north.error_class = Some(Class::Throttle);
    north.certified = true;
    north.decision = Some(Decision::NextTarget);
    north.http_status = Some(429);
    north.retry_after_ms = Some(1_000);
    north.upstream_request_id = Some(Arc::from("req_9"));
    north.finished_at = Some(wall(3_000));
    north.latency_ms = Some(2);
    let mut south = attempt(2, "south");
    south.round = Round::Second;
    south.key_name = None;
    south.state = State::Failed;
    south.delivery = Some("partial");
    south.class = Some(Class::OkStream);
    south.error_class = Some(Class::Transport);
    south.decision = Some(Decision::Stop(Stop::OutputSeen));
    south.http_status = Some(200);
    south.started_at = wall(1_254_000);
    south.finished_at = Some(wall(12_345_678));
    south.latency_ms = Some(11_091);
    record.attempts = vec![north, south];
    StoredRecord::from(&record)
}

/// The names of the contract, which users and dashboards rely on.
#[test]
fn json_has_the_columns_by_their_names() {
    let json = serde_json::to_value(RecordView(&broken())).unwrap();
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let operation = "operation_id boot_id route api public_model stream state http_status error_class reason client_key started_at \
        first_byte_at finished_at latency_ms wait_ms sends rounds request_bytes response_bytes request_capture response_capture \
        prompt_tokens completion_tokens cached_tokens reasoning_tokens usage_partial profile attempts";
    let attempt = "operation_id attempt_no round candidate_index retry_index target provider key_name upstream_model state delivery \
        class certified decision http_status error_class upstream_request_id retry_after_ms started_at first_byte_at finished_at \
        latency_ms";
    assert_eq!(
        names(&json).join(" "),
        operation.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    assert_eq!(
        names(&json["attempts"][0]).join(" "),
        attempt.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    assert_eq!(json["started_at"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(json["finished_at"], "2026-01-01T00:00:12.345678Z");
    assert_eq!(
        (&json["stream"], &json["usage_partial"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&json["sends"], &json["cached_tokens"]),
        (&json!(2), &json!(null))
    );
    assert_eq!(json["attempts"][0]["certified"], true);
    assert_eq!(json["attempts"][1]["decision"], "stop");
}

#[test]
fn a_story_tells_each_attempt_and_the_end() {
    let expected = "\
op-1: failed 200

route       gpt, model gpt-4o, openai_chat, as a stream
started     2026-01-01T00:00:00.000000Z

#  ROUND  TARGET  KEY   STATE     DELIVERY  CLASS      STATUS  DECISION        BEGAN      TOOK
1      1  north   main  rejected  rejected  throttle      429  next_target     +1 ms      2 ms
   acme was asked for gpt-prod; its answer proves that nothing ran; asked to come back after 1000 ms; its id req_9
2      2  south   -     failed    partial   transport     200  stop         +1254 ms  11.091 s
   acme was asked for gpt-prod

end         failed, status 200, the client was told of transport, because: output_seen, after 12.345 s, at 2026-01-01T00:00:12.345678Z
first byte  +30 ms
waits       1250 ms between rounds
sends       2 in 2 rounds
tokens      12 prompt, 3 completion (only what was seen before it broke off)
bytes       request 67 (complete), response 419 (partial)
process     boot b00t
";
    assert_eq!(story(&broken()), expected);
    let open = story(&StoredRecord::from(&begun(1, "op-2", wall(0))));
    for line in [
        "op-2: pending\n",
        "no attempt was made",
        "end         none yet",
        "tokens      not known",
        "waits       none\n",
    ] {
        assert!(open.contains(line), "{line} in {open}");
    }
}

#[test]
fn a_list_is_aligned_and_has_each_try() {
    let long = begun(2, "a-much-longer-id-than-the-other", wall(-1));
    let text = list(&[broken(), StoredRecord::from(&long)]);
    let expected = "\
STARTED                      REQUEST                          ROUTE  STATE    STATUS  SENDS   WAITED      TOOK  TRIES
2026-01-01T00:00:00.000000Z  op-1                             gpt    failed      200      2  1250 ms  12.345 s  north:rejected/throttle,south:partial/transport
2025-12-31T23:59:59.999999Z  a-much-longer-id-than-the-other  gpt    pending       -      0     0 ms         -  -
";
    assert_eq!(text, expected);
}

// A client's model name and a provider's id are anybody's text.
#[test]
fn nothing_that_a_terminal_acts_on_is_printed() {
    let mut record = begun(1, "op", wall(0));
    record.operation.public_model = Arc::from("gpt\u{1b}[31m\r\nfake line\u{202e}");
    let mut tried = attempt(1, "north");
    tried.upstream_request_id = Some(Arc::from("\u{1b}]0;title\u{7}\u{9b}"));
    record.attempts.push(tried);
    let record = StoredRecord::from(&record);
    for text in [story(&record), list(&[record])] {
        let bad = text
            .chars()
            .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{text:?}");
    }
}

#[test]
fn sums_read_as_a_table_and_as_json() {
    let sum = Sum {
        group: "gpt".to_owned(),
        rows: 3,
        states: vec![("failed".to_owned(), 1), ("succeeded".to_owned(), 2)],
        sends: 4,
        latency_ms: 500,
        timed: 2,
        prompt_tokens: 10,
        completion_tokens: 20,
        cached_tokens: 5,
        reasoning_tokens: 0,
    };
    let expected = "\
ROUTE  OPERATIONS  SENDS    MEAN  PROMPT  CACHED  COMPLETION  REASONING  STATES
gpt             3      4  250 ms      10       5          20          0  failed 1, succeeded 2
";
    assert_eq!(sums(SumBy::Route, std::slice::from_ref(&sum)), expected);
    let json = serde_json::to_value(SumView {
        by: SumBy::Route,
        sum: &sum,
    })
    .unwrap();
    assert_eq!(
        json,
        json!({ "by": "route", "group": "gpt", "rows": 3, "states": { "failed": 1, "succeeded": 2 }, "sends": 4, "latency_ms": 500,
            "timed": 2, "prompt_tokens": 10, "completion_tokens": 20, "cached_tokens": 5, "reasoning_tokens": 0 })
    );
    // Nothing is timed yet.
    assert!(sums(SumBy::Key, &[Sum::default()]).contains("  -"));
}

#[test]
fn since_is_a_span_or_a_time() {
    let ago = |text, seconds| {
        let since = Since::parse(text).unwrap();
        assert_eq!(since, Since::Ago(Duration::from_secs(seconds)), "{text}");
        assert_eq!(
            since.instant(wall(0)),
            wall(-1_000_000 * i64::try_from(seconds).unwrap())
        );
    };
    ago("30s", 30);
    ago("15m", 900);
    ago("1h", 3_600);
    ago("2d", 172_800);
    ago("0s", 0);
    let at = |text, micros| {
        let since = Since::parse(text).unwrap();
        assert_eq!(since, Since::At(wall(micros)), "{text}");
        assert_eq!(since.instant(wall(5)), wall(micros));
    };
    at("2026-01-01", 0);
    at("2026-01-01T00:00Z", 0);
    at("2026-01-01T00:00:01Z", 1_000_000);
    at("2026-01-01T00:00:01.5Z", 1_500_000);
    at("2025-12-31T23:59:59.999999Z", -1);
    for bad in [
        "",
        "1",
        "h",
        "1w",
        "-1h",
        "+1h",
        "1 h",
        "1.5h",
        "99999999999999999999s",
        "40000d",
        "1ms",
        "2026-1-1",
        "2026-02-29",
        "2026-13-01",
        "2026-00-10",
        "2026-01-00",
        "2026-01-01T",
        "2026-01-01Z",
        "2026-01-01T24:00Z",
        "2026-01-01T00:60Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+01:00",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01T00:00.5Z",
        "2026-01-01t00:00:00z",
        "²026-01-01",
        "1\u{660}s",
        "1ä",
    ] {
        let error = Since::parse(bad).unwrap_err();
        assert!(
            error.contains("1h") && error.contains("UTC"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn groups_and_states_are_read_by_their_labels() {
    for by in [SumBy::Route, SumBy::Target, SumBy::Key, SumBy::State] {
        assert_eq!(ask::sum_by(ask::sum_by_label(by)), Ok(by));
    }
    assert!(
        ask::sum_by("model")
            .unwrap_err()
            .contains("route, target, key, state")
    );
    assert_eq!(ask::state("timed_out"), Ok(State::TimedOut));
    assert!(ask::state("Pending").is_err());
}
