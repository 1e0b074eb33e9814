//! How much of a large body the process holds, measured from outside: a gateway of its own, its peak from the kernel.

use bytes::Bytes;
use rondo::mock::{MockServer, Script};

use crate::support::caller::{Caller, Way};
use crate::support::client::{Body, Connection, ask, call, chat, parts, request, whole};
use crate::support::process::Process;
use crate::support::{soon, until};

const CHAT: &str = "/v1/chat/completions";
const LARGE: usize = 20 << 20;

fn body() -> Bytes {
    let content = "z".repeat(LARGE);
    format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{content}\"}}]}}")
        .into()
}

fn cut(mut bytes: Bytes) -> Vec<Bytes> {
    let mut cut = Vec::new();
    while !bytes.is_empty() {
        cut.push(bytes.split_to(bytes.len().min(32 << 10)));
    }
    cut
}

/// A body is let go once an answer has begun: nothing is sent again then, and a stream may last for minutes.
#[tokio::test]
async fn a_body_is_released_when_its_answer_begins() {
    // R-L3 R-B7
    let script = "answers: [{ sse: [{ data: { choices: [{ index: 0, delta: { content: Hello } }] } }, { silence: true }] }]";
    for up_h2 in [false, true] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mock = MockServer::start("one", Script::parse(script).unwrap(), listener).unwrap();
        let yaml = format!(
            "providers:\n  one: {{ adapter: openai, http2: {up_h2}, base_url: \"http://{}\" }}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one, model: other }}] }}\n",
            mock.addr()
        );
        for way in [Way::H1Close, Way::H2Close] {
            let process = Process::start("threads: 2", &yaml).await;
            let before = process.memory_now();
            let text = String::from_utf8(body().to_vec()).unwrap();
            let text = text.replacen('{', "{\"stream\":true,", 1);
            let mut caller = Caller::ask(way, process.addr, CHAT, &text).await;
            caller.read_to("Hello").await;
            assert!(
                process.memory_peak() >= before + LARGE,
                "it was held while it could be needed"
            );
            let held = "rondo_buffered_bytes 0\n";
            until_metric(&process, held).await;
            until(|| process.memory_now() < before + LARGE / 2).await;
            caller.leave();
        }
    }
}

async fn until_metric(process: &Process, wanted: &str) {
    soon(async {
        while !ask(process.admin, "GET", "/metrics")
            .await
            .text()
            .contains(wanted)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The peak of a request with a large body that two targets get, above that of a small one.
async fn peak_of(is_h2: bool, up_h2: bool, make: fn(Bytes) -> Body) -> usize {
    let mock = |name: &str, text: &str| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        MockServer::start(name, Script::parse(text).unwrap(), listener).unwrap()
    };
    let (one, two) = (
        mock("one", "answers: [openai.throttle]"),
        mock("two", "answers: [ok]"),
    );
    let provider = |mock: &MockServer| {
        format!(
            "{{ adapter: openai, http2: {up_h2}, base_url: \"http://{}\" }}",
            mock.addr()
        )
    };
    let (first, second) = (provider(&one), provider(&two));
    let yaml = format!(
        "providers:\n  one: {first}\n  two: {second}\nroutes:\n  - name: chat\n    models: [m]\n    targets: [{{ name: first, provider: one, model: other }}, {{ name: second, provider: two }}]\n    routing: {{ cooldown: {{ max_ms: 0 }} }}\n"
    );
    let process = Process::start("threads: 2", &yaml).await;
    assert_eq!(call(process.addr, chat("m")).await.status, 200);
    let before = process.memory_peak();
    let mut client = match is_h2 {
        true => Connection::h2(process.addr).await,
        false => Connection::h1(process.addr).await,
    };
    let answer = client.call(request(CHAT, &[], make(body()))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((one.recorder().sends(), two.recorder().sends()), (2, 2));
    process.memory_peak() - before
}

// R-B7: one copy of a body whose length is known, and two for the moment in which parts of unknown length are joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_is_held_in_two_copies_at_most() {
    let slack = 6 << 20;
    for up_h2 in [false, true] {
        for (is_h2, is_open) in [(false, false), (false, true), (true, false), (true, true)] {
            let make: fn(Bytes) -> Body = match is_open {
                true => |bytes| parts(cut(bytes)),
                false => |bytes| whole(bytes),
            };
            let peak = peak_of(is_h2, up_h2, make).await;
            println!(
                "h2: {is_h2}, without length: {is_open}, upstream h2: {up_h2}: {} KiB",
                peak >> 10
            );
            let copies = if is_open { 2 } else { 1 };
            assert!(
                peak <= copies * LARGE + slack,
                "h2: {is_h2}, open: {is_open}: {peak}"
            );
        }
    }
}

/// What a waiting attempt holds beside its body: some 30 KiB, which do not depend on it.
#[tokio::test]
async fn a_waiting_attempt_holds_little_beside_its_body() {
    // R-B7
    const WAITING: usize = 64;
    const BODY: usize = 100 << 10;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = Script::parse("answers: [{ silence: true }]").unwrap();
    let mock = MockServer::start("one", script, listener).unwrap();
    let yaml = format!(
        "providers:\n  one: {{ adapter: openai, base_url: \"http://{}\" }}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n",
        mock.addr()
    );
    let process = Process::start("threads: 1", &yaml).await;
    let text = String::from_utf8(body().to_vec()).unwrap();
    let text = text.replacen(&"z".repeat(LARGE), &"z".repeat(BODY), 1);
    let mut callers = Vec::new();
    let mut before = 0;
    // The first one pays for what all share.
    for number in 0..=WAITING {
        callers.push(Caller::ask(Way::H1Close, process.addr, CHAT, &text).await);
        soon(mock.recorder().wait_for_bodies(number + 1)).await;
        if number == 0 {
            before = process.memory_now();
        }
    }
    let held = (process.memory_now() - before) / WAITING;
    println!("{} KiB beside the body", (held - BODY) >> 10);
    assert!(held < BODY + (64 << 10), "{} KiB", held >> 10);
    callers.into_iter().for_each(Caller::leave);
}
