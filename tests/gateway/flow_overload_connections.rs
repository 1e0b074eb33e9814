//! More client connections than the process may have: told so and closed, and each seat given back with its connection.

use rondo::policy::overload::Overload;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::client::{Connection, call, chat};
use crate::support::raw::{RawClient, post_text};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const CONFIG: &str = "server: { max_connections: 2 }
providers:
  one: { adapter: openai, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }
";

fn taken(rondo: &Rondo) -> u64 {
    rondo.app.gateway.occupancy.connections.taken()
}

async fn until_taken(rondo: &Rondo, count: u64) {
    rondo.until(|rondo| taken(rondo) == count).await;
}

fn turned_away(rondo: &Rondo) -> f64 {
    let label = format!("limit=\"{}\"", Overload::Connections.label());
    rondo.metric("rondo_overload_refusals_total", &[&label])
}

/// The third client of two reads a 503 in its own format and is closed; when one leaves, the next is served.
#[tokio::test]
async fn above_the_bound_a_connection_is_told_and_closed() {
    // R-B7 R-D3
    let rondo = Rondo::start(CONFIG).await;
    let mut first = Connection::h1(rondo.addr).await;
    assert_eq!(first.call(chat("m")).await.status, 200);
    let mut second = Connection::h2(rondo.addr).await;
    assert_eq!(second.call(chat("m")).await.status, 200);
    assert_eq!(taken(&rondo), 2);
    assert_eq!(rondo.metric("rondo_client_connections", &[]), 2.0);
    for (path, code) in [
        ("/v1/chat/completions", "\"code\":\"overloaded\""),
        ("/v1/messages", "\"code\":\"overloaded\""),
        (
            "/v1beta/models/m:generateContent",
            "\"reason\":\"OVERLOADED\"",
        ),
    ] {
        let mut third = RawClient::connect(rondo.addr).await;
        third.write(&post_text(path, "", "{}")).await;
        let (head, body) = third.answer().await;
        assert!(head.starts_with("http/1.1 503"), "{head}");
        assert!(head.contains("retry-after: 1\r\n"), "{head}");
        assert!(head.contains("connection: close"), "{head}");
        assert!(body.contains(code), "{body}");
        assert_eq!(third.rest().await, (String::new(), true), "an orderly end");
    }
    // HTTP/2 cannot be told in its own words before its handshake: it is closed.
    let mut third = RawClient::connect(rondo.addr).await;
    third.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let _ = third.rest().await;
    // Whoever says nothing is not waited for.
    let mut silent = TcpStream::connect(rondo.addr).await.unwrap();
    let read = soon(silent.read(&mut [0; 1])).await;
    assert!(matches!(read, Ok(0) | Err(_)));
    assert_eq!(turned_away(&rondo), 5.0);
    assert_eq!(taken(&rondo), 2, "who is turned away takes no seat");
    // Both go on as if nothing were, and one that leaves makes room.
    assert_eq!(first.call(chat("m")).await.status, 200);
    assert_eq!(second.call(chat("m")).await.status, 200);
    drop(first);
    until_taken(&rondo, 1).await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    drop(second);
    until_taken(&rondo, 0).await;
    rondo.assert_quiet().await;
}

/// Over TLS a connection has its seat before the handshake, and without one there is none: that is what would cost most.
#[tokio::test]
async fn over_tls_a_connection_is_closed_before_its_handshake() {
    // R-B7
    let identity = Identity::new();
    let rondo = Rondo::start_listening(CONFIG, Some(identity.files.clone())).await;
    let mut first = Connection::h1_tls(rondo.addr, &identity).await;
    let mut second = Connection::h2_tls(rondo.addr, &identity).await;
    for _ in 0..2 {
        assert_eq!(first.call(chat("m")).await.status, 200);
        assert_eq!(second.call(chat("m")).await.status, 200);
    }
    assert_eq!(taken(&rondo), 2);
    let mut third = TcpStream::connect(rondo.addr).await.unwrap();
    let read = soon(third.read(&mut [0; 1])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "nothing is said: {read:?}");
    assert_eq!(turned_away(&rondo), 1.0);
    drop(first);
    until_taken(&rondo, 1).await;
    // A connection whose handshake never begins has a seat as well.
    let idle = TcpStream::connect(rondo.addr).await.unwrap();
    until_taken(&rondo, 2).await;
    drop(idle);
    until_taken(&rondo, 1).await;
    let mut again = Connection::h1_tls(rondo.addr, &identity).await;
    assert_eq!(again.call(chat("m")).await.status, 200);
    drop((second, again));
    until_taken(&rondo, 0).await;
    rondo.assert_quiet().await;
}

/// Five hundred connections that come and go at once, over a bound of twenty: the count ends at nothing.
#[tokio::test]
async fn a_crowd_of_connections_ends_at_none() {
    // R-B7 R-L2
    let rondo = Rondo::start(&CONFIG.replace("2 }", "20 }")).await;
    let clients: Vec<_> = (0..500_usize)
        .map(|number| {
            let addr = rondo.addr;
            tokio::spawn(async move {
                let mut client = RawClient::connect(addr).await;
                let body = r#"{"model":"m","messages":[]}"#;
                let request = post_text("/v1/chat/completions", "", body);
                // Some leave at once, some in the middle of the head, some read their answer.
                let part = match number % 3 {
                    0 => "",
                    1 => &request[..40],
                    _ => &request[..],
                };
                if number % 3 == 2 {
                    use tokio::io::AsyncWriteExt;
                    let _ = client.stream.write_all(part.as_bytes()).await;
                    let mut answer = Vec::new();
                    let mut buffer = [0; 4096];
                    while let Ok(read @ 1..) = client.stream.read(&mut buffer).await {
                        answer.extend_from_slice(&buffer[..read]);
                        if answer.windows(2).any(|two| two == b"}}" || two == b"]}") {
                            break;
                        }
                    }
                } else {
                    client.write(part).await;
                }
            })
        })
        .collect();
    for client in clients {
        soon(client).await.unwrap();
    }
    until_taken(&rondo, 0).await;
    rondo.assert_quiet().await;
    rondo
        .until(|rondo| rondo.app.gateway.turned_away.taken() == 0)
        .await;
}
