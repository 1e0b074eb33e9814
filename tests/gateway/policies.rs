//! Routing policies on real sockets: client keys, rules by header, affinity, balance by sends in flight.

use hyper::Request;
use rondo::core::settlement::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::client::{Answer, Connection, call, chat, chat_body, request, whole};
use crate::support::raw::Upstream;
use crate::support::{Rondo, soon, until};

const CONFIG: &str = r#"
providers:
  one: { adapter: openai, keys: [{ name: a, secret: { literal: key-of-one } }], mock: { answers: [ok] } }
  two: { adapter: openai, keys: [{ name: b, secret: { literal: key-of-two } }], mock: { answers: [ok] } }
routes:
  - name: chat
    models: [m]
    profile: PROFILE
    targets: [{ name: first, provider: one }, { name: second, provider: two }]
profiles:
  warm: { scheduling_mode: cache_affinity }
  plain: {}
client_keys:
  required: REQUIRED
  keys: [{ name: app, secret: { literal: sk-of-app } }, { name: batch, secret: { literal: sk-of-batch } }]
rules:
  - { name: south, when: { header: { name: X-Tenant, value: acme } }, actions: [{ restrict_targets: [second] }] }
  - { name: batch, when: { client_key: batch }, actions: [{ set_target_priority: { target: first, priority: 1 } }] }
  - { name: nowhere, when: { header: { name: x-nowhere, present: true } }, actions: [{ restrict_targets: [] }] }
"#;

async fn gateway(profile: &str, required: bool) -> Rondo {
    let config = CONFIG.replace("PROFILE", profile);
    Rondo::start(&config.replace("REQUIRED", &required.to_string())).await
}

async fn ask(rondo: &Rondo, headers: &[(&str, &str)]) -> Answer {
    let body = whole(chat_body("m", false));
    call(rondo.addr, request("/v1/chat/completions", headers, body)).await
}

async fn models(rondo: &Rondo, headers: &[(&str, &str)]) -> u16 {
    let mut builder = Request::get("http://gateway.test/v1/models").header("host", "gateway.test");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    call(rondo.addr, builder.body(whole("")).unwrap())
        .await
        .status
        .as_u16()
}

/// What a connection says that has sent this head and nothing of its body.
async fn head_alone(rondo: &Rondo, head: &str) -> String {
    let mut stream = TcpStream::connect(rondo.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(async {
        while !String::from_utf8_lossy(&answer).ends_with('}') {
            let read = stream.read_buf(&mut answer).await.unwrap();
            assert!(read > 0, "it closed: {}", String::from_utf8_lossy(&answer));
        }
    })
    .await;
    String::from_utf8(answer).unwrap()
}

fn target(answer: &Answer) -> &str {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-rondo-target").unwrap()
}

// R-X2 R-D3
#[tokio::test]
async fn clients_without_a_key_are_refused_before_their_body_is_read() {
    let rondo = gateway("plain", true).await;
    let app = [("authorization", "Bearer sk-of-app")];
    assert_eq!(target(&ask(&rondo, &app).await), "first");
    for headers in [&[("authorization", "Bearer sk-of-other")][..], &[]] {
        let answer = ask(&rondo, headers).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], "client_key_required");
    }
    // In the client's format, and before a body that never comes.
    let head = "POST /v1/messages HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n\
        x-api-key: sk-of-other\r\ncontent-length: 100000\r\n\r\n";
    let answer = head_alone(&rondo, head).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("authentication_error"), "{answer}");
    assert_eq!(models(&rondo, &[]).await, 401, "the list of models, too");
    assert_eq!(models(&rondo, &app).await, 200);
    // The client's key goes nowhere, in no form; its name is in the record.
    let seen = rondo.mock("one").requests();
    assert_eq!(seen.len(), 1);
    let text = format!("{seen:?}");
    assert!(
        !text.contains("sk-of-app") && text.contains("key-of-one"),
        "{text}"
    );
    rondo.assert_quiet().await;
    let records = rondo.records();
    let record = records
        .iter()
        .find(|r| r.operation.state == State::Succeeded);
    let operation = &record.unwrap().operation;
    assert_eq!(operation.client_key.as_deref(), Some("app"));
    assert_eq!(&*operation.profile, "plain");
    let labels = ["profile=\"plain\""];
    assert_eq!(rondo.metric("rondo_profile_operations_total", &labels), 1.0);
}

#[tokio::test]
async fn rules_choose_by_header_and_by_client() {
    let rondo = gateway("plain", false).await;
    assert_eq!(target(&ask(&rondo, &[]).await), "first");
    assert_eq!(
        target(&ask(&rondo, &[("x-tenant", "acme")]).await),
        "second"
    );
    assert_eq!(
        target(&ask(&rondo, &[("x-tenant", "other")]).await),
        "first"
    );
    assert_eq!(
        target(&ask(&rondo, &[("api-key", "sk-of-batch")]).await),
        "second"
    );
    let mut connection = Connection::h2(rondo.addr).await;
    let body = whole(chat_body("m", false));
    let by_h2 = request("/v1/chat/completions", &[("x-tenant", "acme")], body);
    assert_eq!(target(&connection.call(by_h2).await), "second");
    // Nobody is left: 503 with a code of its own, and no send.
    let sends = rondo.mock("one").sends() + rondo.mock("two").sends();
    let answer = ask(&rondo, &[("x-nowhere", "1")]).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "routing_restricted");
    assert_eq!(rondo.mock("one").sends() + rondo.mock("two").sends(), sends);
    rondo.assert_quiet().await;
}

#[tokio::test]
async fn a_client_goes_back_to_where_it_was_served() {
    let rondo = gateway("warm", false).await;
    let app = [("x-api-key", "sk-of-app")];
    let moved = [("x-api-key", "sk-of-app"), ("x-tenant", "acme")];
    assert_eq!(target(&ask(&rondo, &app).await), "first");
    assert_eq!(target(&ask(&rondo, &moved).await), "second");
    assert_eq!(
        target(&ask(&rondo, &app).await),
        "second",
        "its cache is warm there"
    );
    // A credential that is not configured is told apart all the same; without one there is nothing to remember.
    let other = [("authorization", "Bearer who-knows")];
    assert_eq!(target(&ask(&rondo, &other).await), "first");
    assert_eq!(target(&ask(&rondo, &[]).await), "first");
    rondo.assert_quiet().await;
}

/// A target that is slow to answer gets nothing more while another one is free; when it has answered it takes part again.
#[tokio::test]
async fn a_slow_target_gets_fewer() {
    let (release, released) = watch::channel(false);
    let slow = Upstream::start(move |mut link| {
        let mut released = released.clone();
        async move {
            while link.request().await.is_some() {
                released.wait_for(|released| *released).await.unwrap();
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                link.write(answer).await;
            }
        }
    })
    .await;
    let rondo = Rondo::start(&format!(
        "
providers:
  slow: {}
  quick: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: slow, provider: slow }}, {{ name: quick, provider: quick }}]
    routing: {{ scheduling_mode: load_balance }}
",
        slow.provider("")
    ))
    .await;
    // Until one of them has gone to the slow one, which keeps it.
    let mut kept = None;
    let mut quick = 0;
    while kept.is_none() {
        let mut asked = tokio::spawn(call(rondo.addr, chat("m")));
        tokio::select! {
            answer = &mut asked => {
                assert_eq!(target(&answer.unwrap()), "quick");
                quick += 1;
            }
            () = until(|| slow.requests() == 1) => kept = Some(asked),
        }
    }
    for _ in 0..60 {
        // The one before has ended, so that only the slow target is busy.
        rondo
            .until(|rondo| rondo.app.gateway.around.inflight.count() == 1)
            .await;
        assert_eq!(target(&ask(&rondo, &[]).await), "quick");
    }
    assert_eq!(slow.requests(), 1);
    release.send_replace(true);
    assert_eq!(target(&soon(kept.unwrap()).await.unwrap()), "slow");
    rondo.idle().await;
    let mut turns = 0;
    while target(&ask(&rondo, &[]).await) != "slow" {
        rondo.idle().await;
        turns += 1;
        assert!(turns < 100, "it never takes part again");
    }
    rondo.assert_quiet().await;
    assert!(rondo.mock("quick").sends() >= 60 + quick);
}
