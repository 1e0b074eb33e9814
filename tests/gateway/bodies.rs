//! Bodies arrive byte for byte, whatever carries them: by both protocols, in clear text and over TLS, after a failover.

use bytes::Bytes;
use rondo::mock::{MockServer, Script, body_hash};

use crate::support::client::{Body, Connection, call, parts, post, request, whole};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;
const SIZES: [usize; 7] = [1 << 10, 60_000, 65_535, 65_536, 65_537, 70_000, MIB];
const LARGE: usize = 20 * MIB;

/// Public names, and what the second target is asked for: a longer name, a shorter one, the same.
const NAMES: [(&str, &str); 3] = [
    (
        "m",
        "a-model-with-a-name-that-is-longer-than-the-public-one",
    ),
    ("a-public-name-that-is-rather-long", "b"),
    ("same", "same"),
];

/// How the client sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Down {
    H1Length,
    H1Chunked,
    H1Tls,
    H2Length,
    H2Open,
    H2TlsLength,
    H2TlsOpen,
}

impl Down {
    async fn connect(self, rondo: &Rondo, identity: &Identity) -> Connection {
        match self {
            Down::H1Length | Down::H1Chunked => Connection::h1(rondo.addr).await,
            Down::H1Tls => Connection::h1_tls(rondo.addr, identity).await,
            Down::H2Length | Down::H2Open => Connection::h2(rondo.addr).await,
            Down::H2TlsLength | Down::H2TlsOpen => Connection::h2_tls(rondo.addr, identity).await,
        }
    }

    fn is_tls(self) -> bool {
        matches!(self, Down::H1Tls | Down::H2TlsLength | Down::H2TlsOpen)
    }

    fn body(self, bytes: Bytes) -> Body {
        match self {
            Down::H1Length | Down::H1Tls | Down::H2Length | Down::H2TlsLength => whole(bytes),
            Down::H1Chunked | Down::H2Open | Down::H2TlsOpen => parts(cut(bytes)),
        }
    }
}

/// Parts of uneven size, so that no boundary falls on a buffer's.
fn cut(mut bytes: Bytes) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut size = 1;
    while !bytes.is_empty() {
        parts.push(bytes.split_to(size.min(bytes.len())));
        size = (size * 3 + 1).min(100_003);
    }
    parts
}

/// How the targets are reached.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Up {
    H1,
    H2,
    TlsH1,
    TlsH2,
    /// The provider offers both.
    TlsBoth,
}

impl Up {
    async fn provider(self, mock: &MockServer, identity: &Identity) -> String {
        let (scheme, addr, more) = match self {
            Up::H1 => ("http", mock.addr(), String::new()),
            Up::H2 => ("http", mock.addr(), ", http2: true".to_owned()),
            Up::TlsH1 | Up::TlsH2 | Up::TlsBoth => {
                let alpn: &[&str] = match self {
                    Up::TlsH1 => &["http/1.1"],
                    Up::TlsH2 => &["h2"],
                    _ => &["http/1.1", "h2"],
                };
                let ca = format!(", ca: \"{}\"", identity.files.cert);
                ("https", identity.front(mock.addr(), alpn).await, ca)
            }
        };
        format!("{{ adapter: openai, base_url: \"{scheme}://{addr}\"{more} }}")
    }

    fn is_http2(self) -> Option<bool> {
        match self {
            Up::H1 | Up::TlsH1 => Some(false),
            Up::H2 | Up::TlsH2 => Some(true),
            Up::TlsBoth => None,
        }
    }
}

fn mock(name: &str, script: &str) -> MockServer {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    MockServer::start(name, Script::parse(script).unwrap(), listener).unwrap()
}

/// A body of exactly this size with the model somewhere inside, numbers that no float can hold, and text that is not ASCII.
fn body(model: &str, size: usize) -> String {
    let head = format!(
        "{{ \"seed\":9223372036854775807, \"x\":1e400,\"model\" : \"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"\\ud800€"
    );
    let tail = "\"}],\"y\":0.1000000000000000055 }";
    let mut text = String::with_capacity(size);
    text.push_str(&head);
    let mut letter = 0_u8;
    while text.len() + tail.len() < size {
        text.push(char::from(b'a' + letter));
        letter = (letter + 1) % 26;
    }
    text.push_str(tail);
    assert_eq!(text.len(), size);
    text
}

struct World {
    rondo: Rondo,
    one: MockServer,
    two: MockServer,
    identity: Identity,
}

async fn world(up: Up, is_tls: bool) -> World {
    let identity = Identity::new();
    let one = mock("one", "answers: [{ preset: openai.throttle }]");
    let two = mock("two", "answers: [ok]");
    let routes: String = NAMES
        .iter()
        .map(|(name, model)| {
            let given = if name == model { String::new() } else { format!(", model: \"{model}\"") };
            format!(
                "  - name: {name}\n    models: [{name}]\n    targets: [{{ name: first, provider: one{given} }}, {{ name: second, provider: two{given} }}]\n    routing: {{ cooldown: {{ max_ms: 0 }} }}\n"
            )
        })
        .collect();
    let (first, second) = (
        up.provider(&one, &identity).await,
        up.provider(&two, &identity).await,
    );
    let yaml = format!("providers:\n  one: {first}\n  two: {second}\nroutes:\n{routes}");
    let tls = is_tls.then(|| identity.files.clone());
    World {
        rondo: Rondo::start_listening(&yaml, tls).await,
        one,
        two,
        identity,
    }
}

/// Sends a body of each size for each name, and looks at what arrived at both targets.
async fn check(down: Down, up: Up, sizes: &[usize]) {
    let world = world(up, down.is_tls()).await;
    let mut client = down.connect(&world.rondo, &world.identity).await;
    let mut number = 0;
    for size in sizes {
        // One name is enough for a body that takes seconds.
        let names = match *size {
            LARGE => &NAMES[..1],
            _ => &NAMES[..],
        };
        for &(name, model) in names {
            let sent = body(name, *size);
            let wanted = sent.replacen(&format!("\"{name}\""), &format!("\"{model}\""), 1);
            let answer = client
                .call(request(CHAT, &[], down.body(sent.into())))
                .await;
            let case = format!("{down:?} {up:?} {size} {name}");
            assert_eq!(answer.status, 200, "{case}: {answer:?}");
            assert_eq!(answer.header("x-rondo-target"), Some("second"), "{case}");
            assert_eq!(answer.header("x-rondo-attempts"), Some("2"), "{case}");
            number += 1;
            for mock in [&world.one, &world.two] {
                let seen = soon(mock.recorder().wait_for_bodies(number)).await;
                let seen = &seen[number - 1];
                assert_eq!(seen.body_len, wanted.len() as u64, "{case}");
                assert_eq!(seen.body_hash, body_hash(wanted.as_bytes()), "{case}");
                let length = wanted.len().to_string();
                assert_eq!(seen.header("content-length"), Some(&*length), "{case}");
                assert!(up.is_http2().is_none_or(|is| is == seen.is_http2), "{case}");
                assert_eq!(seen.header("transfer-encoding"), None, "{case}");
            }
        }
    }
    assert_eq!(world.one.recorder().sends(), number as u64);
    assert_eq!(world.two.recorder().sends(), number as u64);
    world.rondo.assert_quiet().await;
}

const ALL: [Up; 5] = [Up::H1, Up::H2, Up::TlsH1, Up::TlsH2, Up::TlsBoth];

// R-X1 R-X3 R-S17, C132 C136 C137 C139 C140
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_with_a_length_is_replayed_byte_for_byte() {
    for up in ALL {
        check(Down::H1Length, up, &SIZES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_chunked_is_replayed_byte_for_byte() {
    for up in ALL {
        check(Down::H1Chunked, up, &SIZES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_with_a_length_is_replayed_byte_for_byte() {
    for up in ALL {
        check(Down::H2Length, up, &SIZES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_without_a_length_is_replayed_byte_for_byte() {
    for up in ALL {
        check(Down::H2Open, up, &SIZES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_over_tls_is_replayed_byte_for_byte() {
    check(Down::H1Tls, Up::TlsBoth, &SIZES).await;
    for up in ALL {
        check(Down::H2TlsLength, up, &SIZES).await;
        check(Down::H2TlsOpen, up, &SIZES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_megabytes_are_replayed_byte_for_byte() {
    for (down, up) in [
        (Down::H1Length, Up::H1),
        (Down::H1Chunked, Up::H2),
        (Down::H2Length, Up::H1),
        (Down::H2Open, Up::H2),
        (Down::H2TlsLength, Up::TlsH1),
        (Down::H2TlsOpen, Up::TlsH2),
    ] {
        check(down, up, &[LARGE]).await;
    }
}

// R-S23, C186: what the client sent is counted once, however many targets were sent it; each of them got all of it.
#[tokio::test]
async fn a_body_that_is_sent_twice_counts_once() {
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 5 }] } }
  two: { adapter: openai, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }, { name: second, provider: two }] }
"#,
    )
    .await;
    let around = r#"{"model":"m","messages":[{"role":"user","content":""}]}"#;
    let text = around.replace(r#""""#, &format!("\"{}\"", "x".repeat(MIB - around.len())));
    let sent = text.len() as u64;
    assert_eq!(sent, MIB as u64);
    let answer = call(rondo.addr, post(CHAT, text)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    rondo.assert_quiet().await;
    for provider in ["one", "two"] {
        let seen = rondo.mock(provider).requests();
        assert_eq!(seen.len(), 1, "{provider}");
        assert!(
            seen[0].body_complete && seen[0].body_len == sent,
            "{provider}"
        );
    }
    let records = rondo.records();
    assert_eq!(records.len(), 1);
    let operation = &records[0].operation;
    assert_eq!((operation.request_bytes, operation.sends), (sent, 2));
}
