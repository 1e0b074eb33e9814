//! The same over HTTP/2 with prior knowledge, driven by h2.

use std::net::SocketAddr;

use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{CHAT, HELLO, post, soon, start};

type Sender = h2::client::SendRequest<Bytes>;

async fn connect_h2(addr: SocketAddr) -> Sender {
    let tcp = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    soon(sender.ready()).await.unwrap()
}

fn send_h2(sender: &mut Sender, path: &str) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let uri = format!("http://mock{path}");
    let request = http::Request::post(uri).body(()).unwrap();
    let (response, mut stream) = sender.send_request(request, false).unwrap();
    stream
        .send_data(Bytes::from_static(HELLO.as_bytes()), true)
        .unwrap();
    (response, stream)
}

async fn body_h2(response: h2::client::ResponseFuture) -> (u16, Vec<u8>, Option<h2::Error>) {
    let response = soon(response).await.unwrap();
    let (status, mut body) = (response.status().as_u16(), response.into_body());
    let mut read = Vec::new();
    while let Some(data) = soon(body.data()).await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                read.extend_from_slice(&data);
            }
            Err(error) => return (status, read, Some(error)),
        }
    }
    (status, read, None)
}

#[tokio::test]
async fn http2_with_prior_knowledge_shares_the_port() {
    let server = start("answers: [ok, openai.throttle, {preset: ok, gap_ms: 1}]");
    let mut sender = connect_h2(server.addr()).await;
    let (response, _stream) = send_h2(&mut sender, CHAT);
    let (status, body, error) = body_h2(response).await;
    assert_eq!((status, error.is_none()), (200, true));
    let json: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        json["choices"][0]["message"]["content"],
        "Hello from primary"
    );
    let (response, _stream) = send_h2(&mut sender, CHAT);
    assert_eq!(body_h2(response).await.0, 429);
    let (response, _stream) = send_h2(
        &mut sender,
        "/v1beta/models/gem:streamGenerateContent?alt=sse",
    );
    let (_, body, _) = body_h2(response).await;
    assert_eq!(
        String::from_utf8(body).unwrap().matches("data: ").count(),
        3
    );
    assert_eq!(post(server.addr(), CHAT, HELLO).await.status, 200);
    let seen = server.recorder().requests();
    let ids: Vec<_> = seen
        .iter()
        .map(|seen| (seen.connection_id, seen.is_http2))
        .collect();
    assert_eq!(ids, [(1, true), (1, true), (1, true), (2, false)]);
    assert!(
        seen.iter()
            .all(|seen| seen.body_complete && seen.answered.is_some())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_is_noticed_and_the_connection_stays() {
    let server = start("answers: [hang, {sse: [{data: a}, {silence: true}]}, ok]");
    let mut sender = connect_h2(server.addr()).await;
    let (response, mut stream) = send_h2(&mut sender, CHAT);
    soon(
        server
            .recorder()
            .wait_until(|seen| seen.iter().any(|s| s.place.is_some())),
    )
    .await;
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    soon(server.recorder().wait_for_closed(1)).await;
    let (response, mut stream) = send_h2(&mut sender, CHAT);
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "data: a\n\n");
    stream.send_reset(h2::Reason::CANCEL);
    soon(server.recorder().wait_for_closed(2)).await;
    let (response, _stream) = send_h2(&mut sender, CHAT);
    assert_eq!(body_h2(response).await.0, 200);
    assert_eq!(server.recorder().connections_opened(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_body_breaks_off_after_its_bytes() {
    let body = "x".repeat(3_000_000);
    for cut in [0, 1, 4, 100_000, 2_000_000] {
        let server = start(&format!("answers: [{{body: {body}, abort_after: {cut}}}]"));
        let mut sender = connect_h2(server.addr()).await;
        let (response, _stream) = send_h2(&mut sender, CHAT);
        let (status, read, error) = body_h2(response).await;
        assert_eq!((status, read.len()), (200, cut));
        assert!(error.is_some(), "the stream ended well");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_connection_can_end_without_a_header() {
    for abort in ["{abort: before_head}", "reset"] {
        let server = start(&format!("answers: [{abort}]"));
        let mut sender = connect_h2(server.addr()).await;
        let (response, _stream) = send_h2(&mut sender, CHAT);
        assert!(soon(response).await.is_err());
        let seen = soon(server.recorder().wait_for_bodies(1)).await;
        assert!(seen[0].closed_by_client.is_none());
    }
}
