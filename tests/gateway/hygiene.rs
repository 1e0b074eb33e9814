//! What never crosses the gateway: the client's credentials to a target, one target's to another, any to a client or a log.

use std::time::Instant;

use parking_lot::Mutex;
use rondo::telemetry::logger::Discreet;

use crate::support::client::{Answer, Body, Connection, call, chat_body, post, request, whole};
use crate::support::frames::PREFACE;
use crate::support::raw::{GOOD, Link, RawClient, Upstream, post_text, two};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";

/// Everything that was logged by this process, by any test.
static LOG: Mutex<String> = parking_lot::const_mutex(String::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("rondo") || record.target().starts_with("pingora") {
            let mut text = LOG.lock();
            text.push_str(&format!(
                "{} {} {}\n",
                record.level(),
                record.target(),
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}

pub fn capture() {
    static LOGGER: Discreet<Capture> = Discreet(Capture);
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(log::LevelFilter::Trace);
}

/// The lines of a target that name a request.
pub fn logged(request: &str, target: &str) -> Vec<String> {
    let log = LOG.lock();
    let lines = log.lines().filter(|line| line.contains(target));
    let of_it = lines.filter(|line| line.contains(&format!("request={request} ")));
    of_it.map(str::to_owned).collect()
}

/// Credentials and private things of a client, each in its own header.
const CLIENT: [(&str, &str); 12] = [
    ("authorization", "Bearer client-secret-1"),
    ("x-api-key", "client-secret-2"),
    ("x-goog-api-key", "client-secret-3"),
    ("api-key", "client-secret-4"),
    ("cookie", "session=client-secret-5"),
    ("proxy-authorization", "Basic client-secret-6"),
    ("x-internal-token", "client-secret-7"),
    ("x-forwarded-for", "client-secret-8"),
    ("openai-organization", "client-secret-9"),
    ("x-amz-security-token", "client-secret-10"),
    ("forwarded", "for=client-secret-11"),
    ("te", "trailers"),
];

fn keyed(adapter: &str, addr: impl std::fmt::Display, key: &str, more: &str) -> String {
    format!(
        "{{ adapter: {adapter}, base_url: \"http://{addr}\"{more}, keys: [{{ name: main, secret: {{ literal: {key} }} }}] }}"
    )
}

async fn mocked(script: &str) -> rondo::mock::MockServer {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = rondo::mock::Script::parse(script).unwrap();
    rondo::mock::MockServer::start("mock", script, listener).unwrap()
}

// R-X2, C169 C171 C172
#[tokio::test]
async fn a_clients_credentials_reach_no_target() {
    capture();
    for http2 in [false, true] {
        let one = mocked("answers: [{ preset: throttle }]").await;
        let two = mocked("answers: [ok]").await;
        for (adapter, path, name) in [
            ("openai", CHAT, "authorization"),
            ("anthropic", "/v1/messages", "x-api-key"),
            (
                "gemini",
                "/v1beta/models/m:generateContent",
                "x-goog-api-key",
            ),
        ] {
            let more = format!(", http2: {http2}");
            let yaml = crate::support::raw::two(
                &keyed(adapter, one.addr(), "target-secret-a", &more),
                &keyed(adapter, two.addr(), "target-secret-b", &more),
            );
            let rondo = Rondo::start(&yaml).await;
            let keyed_path = format!("{path}?key=client-secret-12&alt=json");
            let asked = request(&keyed_path, &CLIENT, whole(chat_body("m", false)));
            let answer = call(rondo.addr, asked).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let (first, second) = (one.recorder().requests(), two.recorder().requests());
            let (first, second) = (first.last().unwrap(), second.last().unwrap());
            for (seen, own, other, addr) in [
                (first, "target-secret-a", "target-secret-b", one.addr()),
                (second, "target-secret-b", "target-secret-a", two.addr()),
            ] {
                let text = format!("{:?} {:?}", seen.headers, seen.query);
                assert!(!text.contains("client-secret"), "{adapter}: {text}");
                assert!(!text.contains(other), "{adapter}: {text}");
                assert!(
                    seen.header(name).unwrap().ends_with(own),
                    "{adapter}: {text}"
                );
                let credentials = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];
                let count = credentials
                    .iter()
                    .filter(|name| seen.headers.contains_key(**name))
                    .count();
                assert_eq!(count, 1, "{adapter}: {text}");
                if !http2 {
                    assert_eq!(seen.header("host"), Some(&*addr.to_string()), "{adapter}");
                }
                for hop in [
                    "connection",
                    "te",
                    "transfer-encoding",
                    "expect",
                    "accept-encoding",
                ] {
                    assert_eq!(seen.header(hop), None, "{adapter}: {hop}");
                }
            }
            assert_private(&rondo, &answer);
        }
    }
}

/// No secret in an answer, the metrics, the records, or anything that was logged.
pub fn assert_private(rondo: &Rondo, answer: &Answer) {
    let told = format!(
        "{:?} {}",
        answer.headers,
        String::from_utf8_lossy(&answer.body)
    );
    let records = format!("{:?}", rondo.app.telemetry.recent(usize::MAX, |_| true));
    let log = LOG.lock().clone();
    assert!(log.contains("rondo"), "nothing was captured");
    let places = [&told, &rondo.app.telemetry.render(), &records, &log];
    for (number, place) in places.into_iter().enumerate() {
        for secret in ["client-secret", "target-secret"] {
            let at = place.find(secret);
            let around = at.map(|at| &place[at.saturating_sub(200)..place.len().min(at + 50)]);
            assert_eq!(around, None, "place {number}");
        }
    }
    let config = format!("{:?}", rondo.app.snapshot());
    assert!(
        !config.contains("target-secret"),
        "the configuration prints its secrets"
    );
}

// C173 and the contract: what a target needs of the client passes.
#[tokio::test]
async fn allowed_headers_pass_to_every_target() {
    let passing = [
        ("user-agent", "client/1.0 (x)"),
        ("anthropic-beta", "tools-2024"),
        ("anthropic-version", "2024-01-01"),
        ("openai-beta", "assistants=v2"),
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        ("accept", "application/json"),
        ("x-request-id", "req-7"),
    ];
    for http2 in [false, true] {
        let provider = |answer: &str| {
            format!("{{ adapter: anthropic, http2: {http2}, mock: {{ answers: [{answer}] }} }}")
        };
        let rondo = Rondo::start(&two(&provider("throttle"), &provider("ok"))).await;
        let body = whole(chat_body("m", false));
        let answer = call(rondo.addr, request("/v1/messages", &passing, body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-request-id"), Some("req-7"));
        for name in ["one", "two"] {
            let seen = &rondo.mock(name).requests()[0];
            for (name, value) in passing {
                assert_eq!(seen.header(name), Some(value));
            }
            assert_eq!(seen.header("content-type"), Some("application/json"));
        }
        rondo.assert_quiet().await;
    }
}

const ECHO: &str = "set-cookie: a=target-secret-c\r\nauthorization: Bearer target-secret-d\r\nx-goog-api-key: target-secret-e\r\nx-api-key: target-secret-f\r\napi-key: target-secret-g\r\nproxy-authenticate: target-secret-h\r\nwww-authenticate: target-secret-i\r\nkeep-alive: timeout=5\r\nx-hop: target-secret-j\r\nconnection: keep-alive, x-hop\r\nupgrade: h2c\r\nopenai-organization: target-secret-k\r\nx-rondo-target: forged\r\nx-request-id: upstream\r\nserver: upstream\r\n";

async fn echo(mut link: Link, status: &'static str, chunked: bool) {
    while link.request().await.is_some() {
        let body = if chunked {
            format!(
                "transfer-encoding: chunked\r\ntrailer: x-tr\r\n\r\n{:x}\r\n{GOOD}\r\n0\r\nx-tr: target-secret-l\r\n\r\n",
                GOOD.len()
            )
        } else {
            format!("content-length: {}\r\n\r\n{GOOD}", GOOD.len())
        };
        link.write(&format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{ECHO}x-kept: yes\r\nopenai-processing-ms: 7\r\n{body}")).await;
    }
}

// R-D2, C170: hop-by-hop headers, those that `connection` names, cookies and credentials stay behind.
#[tokio::test]
async fn private_headers_of_an_answer_stay_behind() {
    capture();
    for status in ["200", "400", "429", "302"] {
        for chunked in [false, true] {
            let one = Upstream::start(move |link| echo(link, status, chunked)).await;
            let one = keyed("openai", one.addr, "target-secret-a", "");
            let yaml = format!(
                "providers:\n  one: {one}\nroutes:\n  - {{ name: r, models: [m], targets: [{{ name: only, provider: one }}] }}\n"
            );
            let rondo = Rondo::start(&yaml).await;
            for down_h2 in [false, true] {
                let mut client = match down_h2 {
                    true => Connection::h2(rondo.addr).await,
                    false => Connection::h1(rondo.addr).await,
                };
                let answer = client.call(post(CHAT, chat_body("m", false))).await;
                let case = format!("{status} chunked: {chunked} h2: {down_h2} {answer:?}");
                assert_eq!(answer.status.as_str(), status, "{case}");
                assert_eq!(answer.text(), GOOD, "{case}");
                assert_private(&rondo, &answer);
                for name in [
                    "x-hop",
                    "keep-alive",
                    "upgrade",
                    "trailer",
                    "set-cookie",
                    "server",
                ] {
                    assert_eq!(answer.header(name), None, "{case}");
                }
                assert_eq!(answer.header("x-rondo-target"), Some("only"), "{case}");
                assert_ne!(answer.header("x-request-id"), Some("upstream"), "{case}");
                assert_eq!(answer.header("openai-processing-ms"), Some("7"), "{case}");
                assert_eq!(answer.header("x-kept").is_some(), status == "200", "{case}");
                assert_eq!(answer.header("connection"), None, "{case}");
            }
            rondo.assert_quiet().await;
        }
    }
}

// C172: an address that cannot be reached, with a key in the client's query.
#[tokio::test]
async fn an_unreachable_target_tells_no_secret() {
    capture();
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let key = |key: &str| keyed("gemini", gone, key, "");
    let rondo = Rondo::start(&two(&key("target-secret-a"), &key("target-secret-b"))).await;
    for path in [
        "/v1beta/models/m:generateContent?key=client-secret-13",
        "/v1beta/models/m:nonsense?key=client-secret-14",
        "/v1beta/models/unknown:generateContent?key=client-secret-15",
    ] {
        let answer = call(rondo.addr, request(path, &CLIENT, whole("{}"))).await;
        assert!(answer.status.as_u16() >= 400, "{answer:?}");
        assert_private(&rondo, &answer);
    }
    let mut raw = RawClient::connect(rondo.addr).await;
    raw.write(&post_text(
        CHAT,
        "authorization: Bearer client-secret-16\r\n",
        "{",
    ))
    .await;
    let _ = raw.answer().await;
    let mut raw = RawClient::connect(rondo.addr).await;
    raw.write("POST / HTTP/9.9\r\nauthorization: Bearer client-secret-17\r\n\r\n")
        .await;
    let _ = soon(raw.rest()).await;
    let answer = call(rondo.addr, post(CHAT, "{")).await;
    assert_private(&rondo, &answer);
    rondo.assert_quiet().await;
}

// A target over HTTP/2 sees its own authority, whatever host the client asked for.
#[tokio::test]
async fn the_authority_is_the_targets_own() {
    let one = Upstream::start(|mut link| async move {
        let request = link.request().await.unwrap();
        assert!(!request.head.contains("gateway.test"), "{}", request.head);
        link.write(&crate::support::raw::json(200, GOOD)).await;
        link.closed().await;
    })
    .await;
    let rondo = Rondo::start(&two(
        &one.provider(""),
        "{ adapter: openai, mock: { answers: [ok] } }",
    ))
    .await;
    let asked: http::Request<Body> = request(
        CHAT,
        &[("host", "gateway.test")],
        whole(chat_body("m", false)),
    );
    assert_eq!(call(rondo.addr, asked).await.text(), GOOD);

    let two = {
        // h2 gives the authority as it came.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            let head = http::Response::builder().status(204).body(()).unwrap();
            respond.send_response(head, true).unwrap();
            tokio::spawn(async move { while connection.accept().await.is_some() {} });
            request.into_parts().0
        });
        (addr, seen)
    };
    let provider = keyed("openai", two.0, "target-secret-a", ", http2: true");
    let yaml = format!(
        "providers:\n  one: {provider}\nroutes:\n  - {{ name: r, models: [m], targets: [{{ name: t, provider: one }}] }}\n"
    );
    let rondo = Rondo::start(&yaml).await;
    let mut client = Connection::h2(rondo.addr).await;
    assert_eq!(
        client.call(post(CHAT, chat_body("m", false))).await.status,
        204
    );
    let seen = soon(two.1).await.unwrap();
    assert_eq!(seen.uri.authority().unwrap().as_str(), two.0.to_string());
    assert_eq!(seen.uri.scheme_str(), Some("http"));
    assert_eq!(seen.headers.get("host"), None);
    assert_eq!(seen.uri.path(), CHAT);
}

// A line that any client can cause is told once a second, whoever causes it.
#[tokio::test]
async fn broken_handshakes_do_not_fill_the_log() {
    capture();
    let provider = "{ adapter: openai, mock: { answers: [ok] } }";
    let rondo = Rondo::start(&two(provider, provider)).await;
    let told = || LOG.lock().matches("H2 handshake error").count();
    let (began, before) = (Instant::now(), told());
    let connections = |rondo: &Rondo| rondo.app.gateway.occupancy.connections.taken();
    for _ in 0..30 {
        let client = RawClient::connect(rondo.addr).await;
        rondo.until(|rondo| connections(rondo) == 1).await;
        // It begins HTTP/2 and is gone before the gateway, on the same thread, has its turn.
        assert_eq!(client.stream.try_write(PREFACE).unwrap(), PREFACE.len());
        client.stream.set_zero_linger().unwrap();
        drop(client);
        rondo.until(|rondo| connections(rondo) == 0).await;
    }
    let lines = told() - before;
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(lines <= seconds + 2, "{lines} in {seconds} s");
}
