//! More requests than the process may serve at once: refused before they are read, and every seat given back, however its holder ends.

use rondo::app::reload::Reloaded;
use rondo::policy::overload::Overload;

use crate::support::caller::{Caller, Way};
use crate::support::client::{Answer, Connection, call, chat, chat_body, post, request, whole};
use crate::support::raw::{RawClient, post_text};
use crate::support::socket::{Target, handshake, open};
use crate::support::stage::{EVENTS, Stage};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
const DELTA: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";

fn config(stage: &Stage, server: &str, rest: &str) -> String {
    format!(
        "server: {{ {server} }}\nproviders:\n  one: {}\n  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}\nroutes:\n  - {{ name: held, models: [held], targets: [{{ name: first, provider: one }}] }}\n  - {{ name: chat, models: [m, gemini], targets: [{{ name: second, provider: two }}] }}\n{rest}",
        stage.upstream.provider("")
    )
}

/// A client whose stream is under way and stays so until the stage ends it.
async fn holding(rondo: &Rondo, stage: &Stage, way: Way) -> Caller {
    let mut client = Caller::ask(way, rondo.addr, CHAT, &chat_body("held", true)).await;
    stage.say(DELTA);
    client.read_to("content").await;
    client
}

fn turned_away(rondo: &Rondo, limit: Overload) -> f64 {
    let label = format!("limit=\"{}\"", limit.label());
    rondo.metric("rondo_overload_refusals_total", &[&label])
}

#[track_caller]
fn assert_overloaded(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.header("x-request-id").is_some());
    assert!(answer.json().to_string().contains(code), "{answer:?}");
}

/// Above the bound every format gets its own 503, over both protocols, without a byte of its body; a seat that is given back is the next
/// one's at once.
#[tokio::test]
async fn above_the_bound_a_request_is_refused_unread() {
    // R-B7 R-D3
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&config(&stage, "max_in_flight: 1", "")).await;
    let holder = holding(&rondo, &stage, Way::H1Close).await;
    assert_eq!(rondo.metric("rondo_inflight_operations", &[]), 1.0);
    let mut refused = 0.0;
    for is_h2 in [false, true] {
        let mut client = match is_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        for path in [
            CHAT,
            "/v1/messages",
            "/v1beta/models/gemini:generateContent",
            "/model/m/converse",
        ] {
            // The same connection serves them all: a small body passes after its answer.
            let answer = client.call(post(path, chat_body("m", false))).await;
            let code = match path {
                "/v1beta/models/gemini:generateContent" => "OVERLOADED",
                _ => "overloaded",
            };
            assert_overloaded(&answer, code);
            refused += 1.0;
        }
    }
    // What is not there is not waited for, and what is too large to pass is not taken.
    for (length, kept) in [(1000, true), (10 << 20, false)] {
        let mut client = RawClient::connect(rondo.addr).await;
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: {length}\r\n\r\n");
        client.write(&head).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("http/1.1 503"), "{head}");
        assert!(head.contains("retry-after: 1\r\n"), "{head}");
        assert_eq!(head.contains("connection: close"), !kept, "{head}");
        assert!(body.contains("\"code\":\"overloaded\""), "{body}");
        refused += 1.0;
    }
    // A handshake has nothing to read, and is refused alike.
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&handshake("/v1/realtime?model=m", "")).await;
    assert!(client.answer().await.0.starts_with("http/1.1 503"));
    refused += 1.0;
    assert_eq!(turned_away(&rondo, Overload::InFlight), refused);
    assert_eq!(rondo.app.gateway.buffered.held(), 0);
    assert_eq!(rondo.mock("two").sends(), 0);
    // The list of models is no operation.
    let models = http::Request::get("http://g/v1/models").header("host", "g");
    let models = models.body(whole("")).unwrap();
    assert_eq!(call(rondo.addr, models).await.status, 200);
    holder.leave();
    stage.cut();
    rondo.idle().await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    rondo.assert_quiet().await;
    assert_eq!(rondo.refusals(), refused);
}

/// The client of a refused request sends its body afterwards and asks again on the same connection.
#[tokio::test]
async fn a_refused_client_asks_again_on_its_connection() {
    // R-B7 R-X3
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&config(&stage, "max_in_flight: 1", "")).await;
    let holder = holding(&rondo, &stage, Way::H1Close).await;
    let request = post_text(CHAT, "", &chat_body("m", false));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&format!("{head}\r\n\r\n")).await;
    assert!(client.answer().await.0.starts_with("http/1.1 503"));
    holder.leave();
    stage.cut();
    rondo
        .until(|rondo| rondo.app.gateway.occupancy.operations.taken() == 0)
        .await;
    client.write(body).await;
    client.write(&request).await;
    let (head, _) = client.answer().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    rondo.assert_quiet().await;
}

/// A client with a key has its own bound, the others have none; the process's bound is asked first.
#[tokio::test]
async fn a_client_is_refused_at_its_own_bound() {
    // R-B7 R-D3 R-X2
    let keys = "client_keys:\n  max_in_flight: 1\n  keys:\n    - { name: small, secret: { literal: key-small } }\n    - { name: large, secret: { literal: key-large }, max_in_flight: 0 }\n";
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&config(&stage, "max_in_flight: 3", keys)).await;
    let ask = |key: &'static str, model: &str, stream: bool| {
        let headers = [("authorization", key)];
        let body = whole(chat_body(model, stream));
        request(CHAT, &headers, body)
    };
    let mut first = Connection::h1(rondo.addr).await;
    stage.say(DELTA);
    let held = soon(first.send(ask("Bearer key-small", "held", true))).await;
    let held = held.unwrap();
    assert_eq!(rondo.app.snapshot().clients.in_flight("small"), 1);
    let refused = call(rondo.addr, ask("Bearer key-small", "m", false)).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["code"], "client_limit");
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    for other in ["Bearer key-large", "Bearer unknown"] {
        assert_eq!(call(rondo.addr, ask(other, "m", false)).await.status, 200);
    }
    drop((held, first));
    stage.cut();
    rondo.idle().await;
    let again = call(rondo.addr, ask("Bearer key-small", "m", false)).await;
    assert_eq!(again.status, 200);
    rondo.assert_quiet().await;
    assert_eq!(rondo.app.snapshot().clients.in_flight("small"), 0);
    assert_eq!(turned_away(&rondo, Overload::ClientInFlight), 1.0);
    assert_eq!(turned_away(&rondo, Overload::InFlight), 0.0);
}

/// Whatever an operation ends with, its seat is free for the next: there is only one.
#[tokio::test]
async fn every_end_gives_its_seat_back() {
    // R-B7 R-L2 R-L5
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&config(
        &stage,
        "max_in_flight: 1, max_request_body: 4KiB, client_read_timeout_ms: 50",
        "",
    ))
    .await;
    let refusals = [
        (post(CHAT, "nonsense"), 400),
        (post(CHAT, chat_body("unknown", false)), 404),
        (post(CHAT, "x".repeat(8 << 10)), 413),
        (post("/v1/realtime", ""), 405),
    ];
    for (request, status) in refusals {
        assert_eq!(call(rondo.addr, request).await.status, status);
        rondo.assert_quiet().await;
    }
    let body = chat_body("held", true);
    for way in Way::ALL {
        // In the upload, before an answer, and inside of one.
        let uploading = Caller::begin(way, rondo.addr, CHAT, &body, 5).await;
        rondo
            .until(|rondo| rondo.app.gateway.occupancy.operations.taken() == 1)
            .await;
        uploading.leave();
        rondo.assert_quiet().await;
        let holder = holding(&rondo, &stage, way).await;
        assert_eq!(rondo.app.gateway.occupancy.operations.taken(), 1);
        holder.leave();
        stage.cut();
        rondo.assert_quiet().await;
        let slow = Caller::begin(way, rondo.addr, CHAT, &body, 5).await;
        rondo
            .until(|rondo| {
                rondo.metric("rondo_slow_clients_total", &["phase=\"upload\""]) > 0.0
                    && rondo.app.gateway.occupancy.operations.taken() == 0
            })
            .await;
        slow.leave();
        rondo.assert_quiet().await;
    }
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    rondo.assert_quiet().await;
}

/// A tunnel is an operation until its end.
#[tokio::test]
async fn a_tunnel_has_a_seat_until_its_end() {
    // R-B7
    let target = Target::start(&[crate::support::socket::SWITCH]).await;
    let rondo = Rondo::start(&format!(
        "server: {{ max_in_flight: 1 }}\nproviders:\n  one: {}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n",
        target.provider()
    ))
    .await;
    for _ in 0..2 {
        let (client, head) = open(&rondo, "/v1/realtime?model=m").await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert_eq!(call(rondo.addr, chat("m")).await.status, 503);
        drop(client);
        rondo.assert_quiet().await;
    }
}

async fn reload(rondo: &Rondo, yaml: &str) {
    std::fs::write(&rondo.file, format!("{yaml}\nledger: {{ store: off }}\n")).unwrap();
    let reloaded = rondo.app.reload().await;
    let Reloaded::Swapped { needs_restart, .. } = reloaded else {
        panic!("{reloaded:?}")
    };
    assert_eq!(needs_restart, Vec::<String>::new());
}

/// A reload moves the bound at once, ends nobody and loses no count.
#[tokio::test]
async fn a_reload_moves_the_bound_at_once() {
    // R-B7 R-C2
    let stage = Stage::h1(EVENTS).await;
    let with = |max: u32| config(&stage, &format!("max_in_flight: {max}"), "");
    let rondo = Rondo::start(&with(1)).await;
    let first = holding(&rondo, &stage, Way::H2Reset).await;
    assert_overloaded(&call(rondo.addr, chat("m")).await, "overloaded");
    reload(&rondo, &with(2)).await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    let second = Caller::ask(Way::H1Close, rondo.addr, CHAT, &chat_body("held", true)).await;
    rondo
        .until(|rondo| rondo.app.gateway.occupancy.operations.taken() == 2)
        .await;
    reload(&rondo, &with(1)).await;
    assert_overloaded(&call(rondo.addr, chat("m")).await, "overloaded");
    first.leave();
    rondo
        .until(|rondo| rondo.app.gateway.occupancy.operations.taken() == 1)
        .await;
    assert_overloaded(&call(rondo.addr, chat("m")).await, "overloaded");
    second.leave();
    stage.cut();
    rondo.idle().await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    rondo.assert_quiet().await;
}

/// While the process drains nobody is told that it is the moment: it will have no room, and the connection goes elsewhere.
#[tokio::test]
async fn a_full_process_that_drains_says_so() {
    // R-B7 R-C3
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&config(&stage, "max_in_flight: 1", "")).await;
    let holder = holding(&rondo, &stage, Way::H1Close).await;
    let mut kept = Connection::h1(rondo.addr).await;
    assert_overloaded(&kept.call(chat("m")).await, "overloaded");
    assert!(rondo.app.is_ready(), "overload is no reason to leave");
    rondo.app.gateway.around.lifecycle.begin_drain();
    let answer = kept.call(chat("m")).await;
    assert_overloaded(&answer, "shutting_down");
    assert_eq!(answer.header("connection"), Some("close"));
    holder.leave();
    stage.cut();
    rondo.assert_quiet().await;
}
