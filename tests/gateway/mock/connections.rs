//! Clients that leave, what is recorded of requests, connections that are kept and ended.

use rondo::mock::{Clock, MockServer, Recorder, Setup, body_hash};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Answer, CHAT, HELLO, listener, post, post_with, request, script, soon, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed() {
    for answer in [
        "{silence: true}",
        "hang",
        "{status: 200, body: hello, silence_after: 2}",
        "{sse: [{data: a}, {silence: true}]}",
        "{sse: [{data: a}, {data: b, gap_ms: 80000000}]}",
        "{preset: ok, delay_ms: 80000000}",
    ] {
        let server = start(&format!("answers: [{answer}]"));
        let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
        tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
        soon(
            server
                .recorder()
                .wait_until(|seen| seen.iter().any(|s| s.place.is_some())),
        )
        .await;
        assert!(
            server.recorder().requests()[0].closed_by_client.is_none(),
            "{answer}"
        );
        drop(tcp);
        let seen = soon(server.recorder().wait_for_closed(1)).await;
        assert!(
            seen[0].body_complete && seen[0].answered.is_none(),
            "{answer}"
        );
        soon(server.recorder().wait_for_connections_closed(1)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_inside_its_body_is_noticed() {
    let server = start("");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = request(CHAT, "", HELLO);
    tcp.write_all(&bytes[..bytes.len() - 10]).await.unwrap();
    soon(server.recorder().wait_for(1)).await;
    drop(tcp);
    let seen = soon(server.recorder().wait_for_closed(1)).await;
    assert!(!seen[0].body_complete && seen[0].answer.is_none());
    assert_eq!(
        (server.recorder().sends(), server.recorder().bodies()),
        (1, 0)
    );
}

#[tokio::test]
async fn silence_after_sends_what_comes_before() {
    let server = start("answers: [{status: 200, body: hello, silence_after: 2}]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nhe") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_early_answer_does_not_wait_for_the_body() {
    let server = start("answers: [{preset: openai.auth, answer_early: true}]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = request(CHAT, "", HELLO);
    let (first, rest) = bytes.split_at(bytes.len() - 10);
    tcp.write_all(first).await.unwrap();
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
    assert!(read.starts_with(b"HTTP/1.1 401"));
    assert!(!server.recorder().requests()[0].body_complete);
    tcp.write_all(rest).await.unwrap();
    let seen = soon(server.recorder().wait_for_bodies(1)).await;
    assert_eq!(seen[0].body, HELLO);
}

#[tokio::test]
async fn requests_are_recorded() {
    let recorder = Recorder::default();
    let runtime = tokio::runtime::Handle::current();
    let setup = Setup {
        recorder: recorder.clone(),
        clock: Clock::running(),
    };
    let [one, two] = ["one", "two"].map(|name| {
        MockServer::start_in(&runtime, name, script(""), listener(), setup.clone()).unwrap()
    });
    let id = "x-request-id: r1\r\n";
    post_with(one.addr(), "/v1/messages?beta=true", id, HELLO).await;
    post_with(two.addr(), CHAT, id, HELLO).await;
    let large = format!(r#"{{"model":"m","pad":"{}"}}"#, "y".repeat(300_000));
    let answer = post(two.addr(), CHAT, &large).await;
    assert_eq!(answer.json()["model"], "m");
    let seen = soon(recorder.wait_for_bodies(3)).await;
    assert_eq!(
        (&*seen[0].server, &*seen[1].server, &*seen[2].server),
        ("one", "two", "two")
    );
    assert_eq!(
        (seen[0].path.as_str(), seen[0].query.as_deref()),
        ("/v1/messages", Some("beta=true"))
    );
    assert_eq!((seen[0].method.as_str(), seen[0].is_http2), ("POST", false));
    assert_eq!(
        (seen[0].request_id(), seen[0].header("host")),
        (Some("r1"), Some("mock"))
    );
    assert_eq!(
        (seen[1].body_hash, seen[1].body_len),
        (body_hash(HELLO.as_bytes()), 62)
    );
    assert_eq!(
        (seen[2].body_hash, seen[2].body.len()),
        (body_hash(large.as_bytes()), 65_536)
    );
    assert_eq!(seen[2].body_len, large.len() as u64);
    assert_eq!(
        recorder.duplicates().into_iter().collect::<Vec<_>>(),
        [("r1".to_owned(), 2)]
    );
    assert_eq!(
        (
            recorder.sends(),
            recorder.bodies(),
            recorder.connections_opened()
        ),
        (3, 3, 3)
    );
    assert_eq!(recorder.requests_of("two").len(), 2);
    assert!(
        seen.iter()
            .all(|seen| seen.answered.is_some() && seen.closed_by_client.is_none())
    );
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let server = start("answers: [openai.throttle, ok]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = String::from_utf8(request(CHAT, "", HELLO)).unwrap();
    tcp.write_all(bytes.replace("connection: close\r\n", "").as_bytes())
        .await
        .unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\"rate_limit_exceeded\"}}") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
    tcp.write_all(bytes.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    soon(tcp.read_to_end(&mut read)).await.unwrap();
    assert_eq!(Answer::read(&read).status, 200);
    let seen = server.recorder().requests();
    assert_eq!((seen[0].connection_id, seen[1].connection_id), (1, 1));
    assert_eq!(
        (seen[0].answer_index(), seen[1].answer_index()),
        (Some(0), Some(1))
    );
}

#[tokio::test]
async fn stop_ends_connections_and_frees_the_port() {
    let server = start("answers: [hang]");
    let (addr, recorder) = (server.addr(), server.recorder().clone());
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
    soon(recorder.wait_for_bodies(1)).await;
    soon(server.stop()).await;
    assert_eq!(recorder.connections_closed(), 1);
    assert!(recorder.requests()[0].closed_by_client.is_none());
    let _ = soon(tcp.read(&mut [0; 1])).await;
    assert!(TcpStream::connect(addr).await.is_err());
}
