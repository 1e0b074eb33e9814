//! WebSockets through the gateway: handshakes fail over until one is accepted, then bytes pass both ways until either side leaves.

use rondo::core::settlement::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::raw::{RawClient, THROTTLE, Upstream, json, two, two_with};
use crate::support::socket::{SWITCH, Target, code, handshake, open, refused};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const REALTIME: &str = "/v1/realtime?model=m";
const RESPONSES: &str = "/v1/responses?model=m";
const OVERLOADED: &str =
    r#"{"error":{"message":"Later.","type":"server_error","param":null,"code":null}}"#;

async fn one(target: &Target) -> Rondo {
    Rondo::start(&two(&target.provider(), &target.provider())).await
}

/// C157: a throttled handshake moves on; frames pass both ways, and the attempt is settled when the tunnel ends.
#[tokio::test]
async fn a_throttled_handshake_moves_on_and_frames_pass_both_ways() {
    // R-S1 R-X2
    for answer in [
        json(429, THROTTLE),
        json(
            429,
            r#"{"error":{"message":"Used up.","type":"usage_limit_reached"}}"#,
        ),
    ] {
        for path in [REALTIME, RESPONSES] {
            let first = Target::start(&[&answer]).await;
            let second = Target::start(&[SWITCH]).await;
            let rondo = Rondo::start(&two(&first.provider(), &second.provider())).await;
            let (mut client, head) = open(&rondo, path).await;
            assert!(head.starts_with("http/1.1 101"), "{head}");
            for line in [
                "upgrade: websocket",
                "connection: upgrade",
                "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
                "sec-websocket-protocol: realtime",
                "x-rondo-target: second",
                "x-rondo-attempts: 2",
                "x-rondo-route: chat",
            ] {
                assert!(head.contains(line), "{line} in {head}");
            }
            for never in [
                "set-cookie",
                "x-request-id: up-1",
                "transfer-encoding",
                "content-length",
            ] {
                assert!(!head.contains(never), "{never} in {head}");
            }
            client.write("ping, one. ").await;
            client.read_to("one. ").await;
            client.write("ping, two.").await;
            client.read_to("two.").await;
            client.stream.shutdown().await.unwrap();
            let (rest, _) = client.rest().await;
            assert_eq!(rest, "");
            rondo.assert_quiet().await;
            let records = rondo.records();
            let [record] = &records[..] else {
                panic!("{records:?}")
            };
            assert_eq!(record.operation.sends, 2);
            assert_eq!(record.operation.state, State::Succeeded);
            assert_eq!(record.attempts[1].state, State::Succeeded);
            assert_eq!((first.sends(), second.sends()), (1, 1));
        }
    }
}

/// C161: a refusal of another kind moves on as well, and what the client sent early goes to the target that switches, once and whole.
#[tokio::test]
async fn early_frames_wait_for_the_switch() {
    // R-F1
    for together in [true, false] {
        let mut first = Target::start(&[&json(503, OVERLOADED)]).await;
        let second = Target::start(&[SWITCH]).await;
        let rondo = Rondo::start(&two(&first.provider(), &second.provider())).await;
        let mut client = RawClient::connect(rondo.addr).await;
        if together {
            let text = handshake(REALTIME, "") + "early frame";
            client.write(&text).await;
        } else {
            client.write(&handshake(REALTIME, "")).await;
            first.head().await;
            client.write("early frame").await;
        }
        let head = client.read_to("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.write(", and more").await;
        assert_eq!(
            client.read_to("and more").await,
            "early frame, and more",
            "together: {together}"
        );
        assert_eq!((first.sends(), second.sends()), (1, 1));
        drop(client);
        rondo.assert_quiet().await;
    }
}

/// C160: an empty 403 of an edge network is no verdict on the key; the same target is tried once more with the same id.
#[tokio::test]
async fn an_edge_refusal_is_tried_again() {
    // R-K2
    let edge = "HTTP/1.1 403 Forbidden\r\ncf-ray: x\r\ncontent-length: 0\r\n\r\n";
    let mut target = Target::start(&[edge, SWITCH]).await;
    let yaml = two(
        &target
            .upstream
            .provider(", keys: [{ name: k, secret: { literal: sk-own } }]"),
        &target.provider(),
    );
    let yaml = yaml.replace("sticky_key_attempts: 1", "sticky_key_attempts: 2");
    let rondo = Rondo::start(&yaml).await;
    let (client, head) = open(&rondo, REALTIME).await;
    assert!(head.contains("x-rondo-target: first"), "{head}");
    let id = |head: &str| {
        let line = head.lines().find(|line| line.starts_with("x-request-id"));
        line.unwrap().to_owned()
    };
    assert_eq!(id(&target.head().await), id(&target.head().await));
    drop(client);
    rondo.assert_quiet().await;

    // For ever, it is the client's to see.
    let target = Target::start(&[edge]).await;
    let rondo = one(&target).await;
    let (head, body) = refused(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 403"), "{head}");
    assert_eq!((body.as_str(), target.sends()), ("", 2));
    rondo.assert_quiet().await;

    // One with a body is the provider's, and says that our key is not accepted.
    let target = Target::start(&[&json(403, OVERLOADED)]).await;
    let rondo = one(&target).await;
    let (head, _) = refused(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 403"), "{head}");
    assert_eq!(target.sends(), 1);
    rondo.assert_quiet().await;
}

/// C162: the refusal's status, body and delay reach the client.
#[tokio::test]
async fn a_refusal_reaches_the_client() {
    // R-D1 R-S20
    let target = Target::start(&[&json(503, OVERLOADED)]).await;
    let rondo = one(&target).await;
    let (head, body) = refused(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(body, OVERLOADED);
    assert_eq!(target.sends(), 2);
    rondo.assert_quiet().await;

    let throttle = json(429, THROTTLE).replace("\r\n\r\n", "\r\nretry-after: 3\r\n\r\n");
    let target = Target::start(&[&throttle]).await;
    let rondo = one(&target).await;
    let (head, body) = refused(&rondo, RESPONSES).await;
    assert!(head.starts_with("http/1.1 429"), "{head}");
    assert!(head.contains("retry-after: 3\r\n"), "{head}");
    assert_eq!(body, THROTTLE);
    rondo.assert_quiet().await;
}

/// A good answer that is no switch, and a switch to something else, cannot be had again and are not passed on.
#[tokio::test]
async fn what_is_no_switch_is_ambiguous() {
    let other = SWITCH.replace("upgrade: websocket", "upgrade: h2c");
    let unproved = SWITCH.replace("sec-websocket-accept", "x-accept");
    for answer in [json(200, "{}"), other, unproved] {
        let first = Target::start(&[&answer]).await;
        let second = Target::start(&[SWITCH]).await;
        let rondo = Rondo::start(&two(&first.provider(), &second.provider())).await;
        let (head, body) = refused(&rondo, REALTIME).await;
        assert!(head.starts_with("http/1.1 502"), "{head}");
        assert_eq!(code(&body), "upstream_ambiguous");
        assert_eq!(second.sends(), 0);
        rondo.assert_quiet().await;
    }
}

/// The target closes: what it said last arrives, and the client's connection is closed at once.
#[tokio::test]
async fn the_upstream_leaves() {
    let upstream = Upstream::start(|mut link| async move {
        link.request().await;
        // The first frame comes with the head.
        link.write(&format!("{SWITCH}first")).await;
        link.write(" last").await;
    })
    .await;
    let rondo = Rondo::start(&two(&upstream.provider(""), &upstream.provider(""))).await;
    let (mut client, head) = open(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    let (rest, _) = client.rest().await;
    assert_eq!(rest, "first last");
    rondo.assert_quiet().await;
    assert_eq!(rondo.records()[0].operation.state, State::Succeeded);
}

/// The client closes: the target sees it at once.
#[tokio::test]
async fn the_client_leaves() {
    for reset in [false, true] {
        let (left, mut seen) = mpsc::unbounded_channel();
        let upstream = Upstream::start(move |mut link| {
            let left = left.clone();
            async move {
                link.request().await;
                link.write(SWITCH).await;
                link.closed().await;
                let _ = left.send(());
            }
        })
        .await;
        let rondo = Rondo::start(&two(&upstream.provider(""), &upstream.provider(""))).await;
        let (client, _) = open(&rondo, REALTIME).await;
        if reset {
            client.stream.set_zero_linger().unwrap();
        }
        drop(client);
        soon(seen.recv()).await.unwrap();
        rondo.assert_quiet().await;
        let state = rondo.records()[0].operation.state;
        let expected = if reset {
            State::Cancelled
        } else {
            State::Succeeded
        };
        assert_eq!(state, expected);
    }
}

/// A target that breaks off, and one that is silent beyond the limit.
#[tokio::test]
async fn a_broken_or_silent_tunnel_ends() {
    for (silent, expected) in [(false, State::Failed), (true, State::TimedOut)] {
        let upstream = Upstream::start(move |mut link| async move {
            link.request().await;
            link.write(SWITCH).await;
            link.body(5).await;
            if silent {
                link.closed().await;
            } else {
                link.reset();
            }
        })
        .await;
        let idle = if silent { 300 } else { 60_000 };
        let provider = upstream.provider(&format!(", timeouts: {{ idle_ms: {idle} }}"));
        let rondo = Rondo::start(&two(&provider, &provider)).await;
        let (mut client, _) = open(&rondo, REALTIME).await;
        client.write("hello").await;
        client.rest().await;
        rondo.assert_quiet().await;
        assert_eq!(
            rondo.records()[0].operation.state,
            expected,
            "silent: {silent}"
        );
    }
}

/// Either side may be silent as long as the other speaks; the total limit holds all the same.
#[tokio::test]
async fn a_tunnel_ends_at_its_total_limit() {
    let target = Target::start(&[SWITCH]).await;
    let provider = target
        .upstream
        .provider(", timeouts: { idle_ms: 60000, total_ms: 400 }");
    let rondo = Rondo::start(&two(&provider, &provider)).await;
    let (mut client, _) = open(&rondo, REALTIME).await;
    client.write("begin").await;
    let mut bytes = [0; 64];
    soon(async {
        while matches!(client.stream.read(&mut bytes).await, Ok(count) if count > 0) {
            let _ = client.stream.write_all(b"more").await;
        }
    })
    .await;
    rondo.assert_quiet().await;
    assert_eq!(rondo.records()[0].operation.state, State::TimedOut);
}

/// Much goes both ways at once, and nothing is lost.
#[tokio::test]
async fn both_ways_at_once() {
    const BYTES: usize = 4 << 20;
    let target = Target::start(&[SWITCH]).await;
    let rondo = one(&target).await;
    let (client, _) = open(&rondo, REALTIME).await;
    let (mut read, mut write) = client.stream.into_split();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        write.write_all(&copy).await.unwrap();
        write
    });
    let mut back = vec![0; BYTES];
    soon(read.read_exact(&mut back)).await.unwrap();
    assert!(back == sent);
    drop(soon(writing).await.unwrap());
    drop(read);
    rondo.assert_quiet().await;
    let record = &rondo.records()[0];
    assert_eq!(record.operation.sends, 1);
    assert_eq!(record.operation.response_bytes, BYTES as u64);
}

/// A target that speaks at length behind its head, while the client does behind its handshake: nothing is lost either way.
#[tokio::test]
async fn a_megabyte_each_way_from_the_first_byte() {
    const BYTES: usize = 1 << 20;
    /// A little less than a client may send before there is a tunnel.
    const EARLY: usize = 60_000;
    let pattern = |from: usize| -> Vec<u8> {
        let bytes = (from..from + BYTES).map(|at| (at % 251) as u8);
        bytes.collect()
    };
    let (heard, mut seen) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |mut link| {
        let heard = heard.clone();
        async move {
            link.request().await;
            let (mut read, mut write) = link.stream.split();
            let said = [SWITCH.as_bytes(), &pattern(1)].concat();
            let mut bytes = vec![0; BYTES];
            let both = tokio::join!(write.write_all(&said), read.read_exact(&mut bytes));
            assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
            let _ = heard.send(bytes);
            link.closed().await;
        }
    })
    .await;
    let rondo = Rondo::start(&two(&upstream.provider(""), &upstream.provider(""))).await;
    let mut client = RawClient::connect(rondo.addr).await;
    let says = pattern(7);
    let (early, later) = says.split_at(EARLY);
    let first = [handshake(REALTIME, "").as_bytes(), early].concat();
    client.stream.write_all(&first).await.unwrap();
    let (mut read, mut write) = client.stream.into_split();
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        assert!(soon(read.read_buf(&mut bytes)).await.unwrap() > 0);
    }
    let said = pattern(1);
    let whole = async {
        while bytes.len() < BYTES || !bytes.ends_with(&said) {
            let came = read.read_buf(&mut bytes).await.unwrap();
            assert!(came > 0, "ended after {}", bytes.len());
        }
    };
    let ((), wrote) = soon(async { tokio::join!(whole, write.write_all(later)) }).await;
    wrote.unwrap();
    assert!(soon(seen.recv()).await.unwrap() == says);
    let head = &bytes[..bytes.len() - BYTES];
    assert!(head.starts_with(b"HTTP/1.1 101") && head.ends_with(b"\r\n\r\n"));
    drop((read, write));
    rondo.assert_quiet().await;
    let operation = &rondo.records()[0].operation;
    assert_eq!(operation.state, State::Succeeded);
    assert_eq!(operation.response_bytes, BYTES as u64);
}

/// Only the target's credential arrives, whatever the client hides its own in, and the model is the target's.
#[tokio::test]
async fn no_credential_of_the_client_passes() {
    // R-X2
    let mut target = Target::start(&[SWITCH]).await;
    let provider = target
        .upstream
        .provider(", http2: true, keys: [{ name: k, secret: { literal: sk-own } }]");
    let yaml = two_with(&provider, &target.provider(), "").replace(
        "name: first, provider: one",
        "name: first, provider: one, model: \"their/model\"",
    );
    let rondo = Rondo::start(&yaml).await;
    let mut client = RawClient::connect(rondo.addr).await;
    let headers = "authorization: Bearer sk-client\r\ncookie: c=sk-client\r\napi-key: sk-client\r\nopenai-beta: realtime=v1\r\norigin: http://x.test\r\nx-rondo-model: m\r\ncontent-type: text/plain\r\nsec-websocket-protocol: realtime, openai-insecure-api-key.sk-client, openai-organization.org-1\r\nsec-websocket-protocol: openai-beta.realtime-v1, bearer.sk-client\r\nsec-websocket-extensions: permessage-deflate\r\n";
    let path = "/v1/realtime?x=1&model=m&api_key=sk-client&voice=a";
    client.write(&handshake(path, headers)).await;
    client.read_to("\r\n\r\n").await;
    let head = target.head().await;
    assert!(
        head.starts_with("get /v1/realtime?x=1&model=their%2fmodel&voice=a http/1.1\r\n"),
        "{head}"
    );
    for line in [
        "authorization: bearer sk-own",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dghlihnhbxbszsbub25jzq==",
        "sec-websocket-protocol: realtime, openai-beta.realtime-v1",
        "sec-websocket-extensions: permessage-deflate",
        "openai-beta: realtime=v1",
    ] {
        let count = head.lines().filter(|found| *found == line).count();
        assert_eq!(count, 1, "{line} in {head}");
    }
    for never in [
        "sk-client",
        "org-1",
        "cookie",
        "origin",
        "x-rondo",
        "content-",
        "gateway.test",
    ] {
        assert!(!head.contains(never), "{never} in {head}");
    }
    drop(client);
    rondo.assert_quiet().await;
}

/// Handshakes are sends: one operation makes no more of them than its budget, over both rounds.
#[tokio::test]
async fn handshakes_have_the_budgets_of_other_sends() {
    // R-B1 R-S5
    let throttle = json(429, THROTTLE).replace("\r\n\r\n", "\r\nretry-after-ms: 20\r\n\r\n");
    let one = Target::start(&[&throttle, SWITCH]).await;
    let two_targets = Target::start(&[&throttle]).await;
    let routing = ", max_target_attempts: 2, max_upstream_sends: 3, exhaustion_retry: { max_rounds: 1, max_wait_ms: 30000 }, mode: priority_failover";
    let yaml = two_with(&one.provider(), &two_targets.provider(), routing);
    let rondo = Rondo::start(&yaml).await;
    let (client, head) = open(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(
        head.contains("x-rondo-round: 2") && head.contains("x-rondo-attempts: 3"),
        "{head}"
    );
    assert_eq!((one.sends(), two_targets.sends()), (2, 1));
    drop(client);
    rondo.assert_quiet().await;

    let routing = ", max_target_attempts: 2, max_upstream_sends: 1";
    let target = Target::start(&[&json(503, OVERLOADED)]).await;
    let yaml = two_with(&target.provider(), &target.provider(), routing);
    let rondo = Rondo::start(&yaml).await;
    let (head, _) = refused(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(target.sends(), 1);
    rondo.assert_quiet().await;
}

/// A call exists at one provider: its handshake stays with the first target.
#[tokio::test]
async fn a_call_does_not_move() {
    // R-S7
    let first = Target::start(&[&json(429, THROTTLE)]).await;
    let second = Target::start(&[SWITCH]).await;
    let rondo = Rondo::start(&two(&first.provider(), &second.provider())).await;
    let (head, _) = refused(&rondo, "/v1/realtime?model=m&call_id=rtc_1").await;
    assert!(head.starts_with("http/1.1 429"), "{head}");
    assert_eq!((first.sends(), second.sends()), (1, 0));
    rondo.assert_quiet().await;
}

/// The same over TLS on both sides, with a target that would rather speak HTTP/2.
#[tokio::test]
async fn tunnels_go_over_tls() {
    let identity = Identity::new();
    let target = Target::start(&[SWITCH]).await;
    let front = identity
        .front(target.upstream.addr, &["h2", "http/1.1"])
        .await;
    let provider = format!(
        "{{ adapter: openai, base_url: \"https://localhost:{}\", ca: \"{}\", http2: true }}",
        front.port(),
        identity.files.cert
    );
    let yaml = two(&provider, &provider);
    let rondo = Rondo::start_listening(&yaml, Some(identity.files.clone())).await;
    let mut client = identity.connect(rondo.addr, "http/1.1").await;
    let text = handshake(REALTIME, "") + "hello";
    client.write_all(text.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    soon(async {
        while !seen.ends_with(b"hello") {
            assert!(client.read_buf(&mut seen).await.unwrap() > 0);
        }
    })
    .await;
    assert!(seen.starts_with(b"HTTP/1.1 101"));
    client.shutdown().await.unwrap();
    drop(client);
    rondo.assert_quiet().await;
    assert_eq!(rondo.records()[0].operation.state, State::Succeeded);
}

/// A drain leaves open tunnels their grace, and takes no other target for a handshake that fails in it.
#[tokio::test]
async fn a_drain_lets_tunnels_go_on() {
    // R-C3
    let target = Target::start(&[SWITCH, &json(503, OVERLOADED)]).await;
    let rondo = one(&target).await;
    let (mut client, _) = open(&rondo, REALTIME).await;
    rondo.app.gateway.around.lifecycle.begin_drain();
    client.write("still").await;
    client.read_to("still").await;
    let (head, _) = refused(&rondo, REALTIME).await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(target.sends(), 2);
    drop(client);
    rondo.assert_quiet().await;
}

/// A client that leaves while its handshake is unanswered is not sent for again.
#[tokio::test]
async fn a_client_that_leaves_early_ends_the_handshake() {
    // R-D4
    let (begun, mut seen) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |mut link| {
        let begun = begun.clone();
        async move {
            link.request().await;
            let _ = begun.send(());
            link.closed().await;
            let _ = begun.send(());
        }
    })
    .await;
    let rondo = Rondo::start(&two(&upstream.provider(""), &upstream.provider(""))).await;
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&handshake(REALTIME, "")).await;
    soon(seen.recv()).await.unwrap();
    drop(client);
    soon(seen.recv()).await.unwrap();
    rondo.assert_quiet().await;
    assert_eq!(upstream.requests(), 1);
    assert_eq!(rondo.records()[0].operation.state, State::Cancelled);
}
