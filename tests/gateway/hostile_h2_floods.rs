//! Frames without end on a client's HTTP/2 connection. Each flood ends its connection or costs a bounded amount, what had begun settles
//! once, and another client is served meanwhile.

use rondo::core::settlement::State;

use crate::support::Rondo;
use crate::support::auditor::{Auditor, asking, served};
use crate::support::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING,
    PRIORITY, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, bytes,
};
use crate::support::wire::{CHAT, End, LAST, Wire, block, request};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

fn head(stream: u32) -> Vec<u8> {
    bytes(HEADERS, END_HEADERS, stream, &block(&CHAT))
}

fn reset(stream: u32) -> Vec<u8> {
    bytes(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

fn last_ping() -> Vec<u8> {
    bytes(PING, 0, 0, LAST)
}

/// Pours this on one connection while another client is served, and returns how the first one's ended.
async fn flood(rondo: &Rondo, case: &str, frames: &[u8]) -> Option<End> {
    let mut wire = Wire::open(rondo.addr, &[]).await;
    let poured = [frames, &last_ping()].concat();
    let (end, ()) = tokio::join!(wire.pour(&poured), served(rondo.addr, "beside", case));
    end
}

fn code(end: Option<End>) -> Option<u32> {
    match end {
        Some(End::Goaway(code, _)) => Some(code),
        Some(_) => Some(u32::MAX),
        None => None,
    }
}

fn times(count: usize, frame: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let frames = (0..count).map(|index| frame(u32::try_from(index).unwrap()));
    frames.collect::<Vec<_>>().concat()
}

// R-B5 R-L1, CVE-2023-44487: streams that are opened and reset in one go.
#[tokio::test]
async fn streams_that_are_reset_at_once_end_the_connection() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 1000").await;
    let heads = times(2_000, |n| [head(2 * n + 1), reset(2 * n + 1)].concat());
    let end = flood(&rondo, "heads", &heads).await;
    assert_eq!(code(end), Some(ENHANCE_YOUR_CALM));
    let body = asking("reset");
    let whole = times(2_000, |n| {
        [request(2 * n + 1, &CHAT, &body), reset(2 * n + 1)].concat()
    });
    let end = flood(&rondo, "requests", &whole).await;
    assert_eq!(code(end), Some(ENHANCE_YOUR_CALM));
    rondo.assert_quiet().await;
    assert!(auditor.requests() < 2 + 100, "{}", auditor.requests());
    auditor.assert_clean("resets");
}

// R-B5 R-L1 R-L5: streams that are reset one by one, each once its request has been sent. Each is one send and one end.
#[tokio::test]
async fn streams_that_are_reset_later_settle_once_each() {
    const STREAMS: u32 = 150;
    let yaml = "providers:\n  one: { adapter: openai, mock: { answers: [{ silence: true }] } }\nroutes:\n  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }\n";
    let rondo = Rondo::start(yaml).await;
    let mut wire = Wire::open(rondo.addr, &[]).await;
    for number in 0..STREAMS {
        let stream = 2 * number + 1;
        wire.write(&request(stream, &CHAT, &asking("reset"))).await;
        let wanted = u64::from(number) + 1;
        rondo
            .until(|rondo| rondo.mock("one").sends() == wanted)
            .await;
        wire.write(&reset(stream)).await;
    }
    rondo.assert_quiet().await;
    assert_eq!(rondo.mock("one").sends(), u64::from(STREAMS));
    let records = rondo.records();
    assert_eq!(records.len(), STREAMS as usize);
    let cancelled = |state: State| state == State::Cancelled;
    assert!(
        records
            .iter()
            .all(|record| { cancelled(record.operation.state) && record.attempts.len() == 1 })
    );
}

// R-B5: a head without an end, in frames that continue it.
#[tokio::test]
async fn a_head_without_an_end_ends_the_connection() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 1000").await;
    let begin = bytes(HEADERS, 0, 1, &block(&CHAT));
    for (case, part) in [
        ("empty", Vec::new()),
        ("one field", block(&[("x", "y")])),
        ("large", block(&[("x", &"y".repeat(16_000))])),
        ("half a field", vec![0x00]),
    ] {
        let more = times(20_000_usize.min((8 << 20) / (part.len() + 9)), |_| {
            bytes(CONTINUATION, 0, 1, &part)
        });
        let end = flood(&rondo, case, &[begin.clone(), more].concat()).await;
        let code = code(end);
        assert!(
            matches!(
                code,
                Some(ENHANCE_YOUR_CALM | COMPRESSION_ERROR | PROTOCOL_ERROR)
            ),
            "{case}: {code:?}"
        );
    }
    rondo.assert_quiet().await;
    auditor.assert_clean("continuations");
}

// R-B7: what is answered or ignored costs nothing that is kept; what breaks the protocol ends the connection.
#[tokio::test]
async fn small_frames_are_answered_or_end_the_connection() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 1000").await;
    let window = |stream: u32, by: u32| bytes(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    let whole = request(1, &CHAT, &asking("window"));
    for (case, frames, wanted) in [
        (
            "pings",
            times(5_000, |_| bytes(PING, 0, 0, b"pingpong")),
            None,
        ),
        (
            "settings",
            times(5_000, |_| bytes(SETTINGS, 0, 0, &[])),
            None,
        ),
        (
            "table sizes",
            times(5_000, |n| {
                bytes(
                    SETTINGS,
                    0,
                    0,
                    &[0, 1, 0, 0, 0, if n % 2 == 0 { 0 } else { 255 }],
                )
            }),
            None,
        ),
        (
            "unasked acknowledgements",
            times(5_000, |_| bytes(SETTINGS, 1, 0, &[])),
            Some(PROTOCOL_ERROR),
        ),
        (
            "priorities",
            times(5_000, |n| bytes(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 16])),
            None,
        ),
        (
            "unknown frames",
            times(5_000, |_| bytes(0xee, 0, 0, b"x")),
            None,
        ),
        ("windows", times(5_000, |_| window(0, 1)), None),
        ("a window of nothing", window(0, 0), Some(PROTOCOL_ERROR)),
        (
            "a window too wide",
            window(0, 0x7fff_ffff),
            Some(FLOW_CONTROL_ERROR),
        ),
        (
            "a first window too wide",
            bytes(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
            Some(PROTOCOL_ERROR),
        ),
        (
            "a frame too large",
            bytes(DATA, 0, 1, &vec![0; 16_385]),
            Some(FRAME_SIZE_ERROR),
        ),
        (
            "a promise",
            [
                whole.clone(),
                bytes(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
            ]
            .concat(),
            Some(PROTOCOL_ERROR),
        ),
        ("an even stream", head(2), Some(PROTOCOL_ERROR)),
        ("a reset of nothing", reset(9), Some(PROTOCOL_ERROR)),
        (
            "a body of nothing",
            bytes(DATA, 0, 9, b"x"),
            Some(PROTOCOL_ERROR),
        ),
        (
            "empty frames of a body",
            [head(1), times(2_000, |_| bytes(DATA, 0, 1, b""))].concat(),
            Some(ENHANCE_YOUR_CALM),
        ),
        (
            "tiny pieces of a body",
            [head(1), times(60_000, |_| bytes(DATA, 0, 1, b" "))].concat(),
            Some(ENHANCE_YOUR_CALM),
        ),
        (
            "a broken head",
            bytes(HEADERS, END_HEADERS, 1, &[0xff; 16]),
            Some(PROTOCOL_ERROR),
        ),
    ] {
        let end = flood(&rondo, case, &frames).await;
        assert_eq!(code(end.clone()), wanted, "{case}: {end:?}");
    }
    rondo.assert_quiet().await;
    auditor.assert_clean("small frames");
}

// R-B7: more streams than may be open are refused, one by one; who goes on is sent away.
#[tokio::test]
async fn streams_above_the_bound_are_refused() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 500").await;
    let mut wire = Wire::open(rondo.addr, &[]).await;
    wire.write(&times(101, |n| head(2 * n + 1))).await;
    assert_eq!(wire.end(201).await, End::Reset(REFUSED_STREAM));
    served(rondo.addr, "beside", "a hundred open heads").await;
    drop(wire);
    let end = flood(&rondo, "streams", &times(1_000, |n| head(2 * n + 1))).await;
    assert_eq!(code(end), Some(ENHANCE_YOUR_CALM));
    rondo.assert_quiet().await;
    assert_eq!(auditor.requests(), 2);
}

// R-B4 R-L1: a client that never opens its window ends with the time for a piece of its answer.
#[tokio::test]
async fn a_window_that_never_opens_ends() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_write_timeout_ms: 200").await;
    let mut wire = Wire::open(rondo.addr, &[(4, 0)]).await;
    wire.write(&request(1, &CHAT, &asking("stalled"))).await;
    wire.write(&request(3, &CHAT, "{")).await;
    assert!(matches!(wire.end(1).await, End::Reset(_)));
    served(rondo.addr, "beside", "a closed window").await;
    rondo.assert_quiet().await;
    assert_eq!(rondo.records().len(), 2);
    // Its provider's answer was whole, so that it counts as a success; and the refusal of the other stream waited for the window too.
    assert_eq!(rondo.metric("rondo_requests_total", &[]), 3.0);
    assert_eq!(auditor.requests(), 2);
}

/// A head of 16 KiB that stands for tens of megabytes: one long field, named again and again.
fn bomb() -> Vec<u8> {
    let mut fields = block(&CHAT);
    // With indexing: it becomes entry 62.
    fields.extend_from_slice(&[0x40, 1, b'x', 127, 0x81, 0x1e]);
    fields.extend(std::iter::repeat_n(b'y', 4_000));
    fields.resize(16_384, 0x80 | 62);
    bytes(HEADERS, END_HEADERS, 1, &fields)
}

// R-B7: a head is counted as what it stands for.
#[tokio::test]
async fn a_head_that_unpacks_is_refused() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 500").await;
    let large = "y".repeat(8_000);
    let many = (0..2_000).map(|n| format!("x-{n}")).collect::<Vec<_>>();
    let fields: Vec<_> = many.iter().map(|name| (&**name, "y")).collect();
    for (case, block) in [
        (
            "large fields",
            block(&[&CHAT[..], &[("x", &*large); 9]].concat()),
        ),
        ("many fields", block(&[&CHAT[..], &fields].concat())),
        (
            "a long path",
            block(&[&CHAT[..3], &[(":path", &"/x".repeat(40_000))]].concat()),
        ),
        (
            "cookies",
            block(&[&CHAT[..], &[("cookie", &*large); 9]].concat()),
        ),
    ] {
        let mut parts = block.chunks(16_384);
        let mut frames = bytes(HEADERS, 0, 1, parts.next().unwrap());
        parts.for_each(|part| frames.extend(bytes(CONTINUATION, 0, 1, part)));
        frames.extend(bytes(CONTINUATION, END_HEADERS, 1, &[]));
        check_refused(&rondo, case, &frames).await;
    }
    check_refused(&rondo, "a bomb", &bomb()).await;
    rondo.assert_quiet().await;
    auditor.assert_clean("heads");
}

async fn check_refused(rondo: &Rondo, case: &str, frames: &[u8]) {
    let mut wire = Wire::open(rondo.addr, &[]).await;
    wire.write(frames).await;
    let end = wire.end(1).await;
    assert!(
        !matches!(end, End::Answered { ok: true, .. }),
        "{case}: {end:?}"
    );
    served(rondo.addr, "beside", case).await;
}

// A body may come in small pieces, all at once.
#[tokio::test]
async fn a_body_in_small_pieces_is_a_body() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_read_timeout_ms: 1000").await;
    let word = "w".repeat(50_000);
    let body = asking(&word);
    let mut wire = Wire::open(rondo.addr, &[]).await;
    let mut frames = head(1);
    for piece in body.as_bytes().chunks(40) {
        frames.extend(bytes(DATA, 0, 1, piece));
    }
    frames.extend(bytes(DATA, END_STREAM, 1, &[]));
    wire.write(&frames).await;
    let end = wire.end(1).await;
    assert!(
        matches!(&end, End::Answered { ok: true, body } if body.contains(&word)),
        "{end:?}"
    );
    rondo.assert_quiet().await;
}
