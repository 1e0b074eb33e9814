//! Local limits, the retry budget and health checks, on real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use http_body_util::BodyExt;
use rondo::core::settlement::State;

use crate::support::client::{Connection, call, chat, chat_body, post};
use crate::support::raw::Upstream;
use crate::support::stage::{EVENTS, Stage};
use crate::support::{Rondo, soon};

/// Two hundred clients at once get exactly what the limit allows from the first target, the others are served by the second.
#[tokio::test]
async fn a_crowd_never_passes_a_limit() {
    // R-F2
    let rondo = Rondo::start(
        "providers:
  one: { adapter: openai, mock: { answers: [ok] } }
  two: { adapter: openai, mock: { answers: [ok] } }
routes:
  - name: chat
    models: [m]
    targets:
      - { name: one, provider: one, limits: { requests_per_minute: 60 } }
      - { name: two, provider: two }
    routing: { fallback_strategy: [rate_limiting] }
",
    )
    .await;
    let calls: Vec<_> = (0..200)
        .map(|_| tokio::spawn(call(rondo.addr, chat("m"))))
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().status, 200);
    }
    rondo.assert_quiet().await;
    assert_eq!(rondo.mock("one").sends(), 60);
    assert_eq!(rondo.mock("two").sends(), 140);
    let skipped = rondo.metric("rondo_candidates_skipped_total", &["target=\"one\""]);
    assert_eq!(skipped, 140.0);
    let limits = rondo.app.snapshot().routes[0].targets[0].limits.clone();
    let usage = limits.unwrap().usage(rondo.app.gateway.around.clock.mono());
    assert_eq!((usage.requests, usage.concurrent), (60, 0));
}

/// A stream is under way until its end, and a client that leaves ends it.
#[tokio::test]
async fn a_stream_holds_its_slot_until_its_end() {
    // R-D3 R-L5
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&format!(
        "providers:\n  one: {}\nroutes:\n  - name: chat\n    models: [m]\n    targets:\n      - {{ name: one, provider: one, limits: {{ concurrent: 1 }} }}\n",
        stage.upstream.provider("")
    ))
    .await;
    let ask = || post("/v1/chat/completions", chat_body("m", true));
    let delta = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    for leaves in [false, true] {
        let mut client = Connection::h1(rondo.addr).await;
        stage.say(delta);
        let answer = soon(client.send(ask())).await.unwrap();
        assert_eq!(answer.status(), 200);
        let refused = call(rondo.addr, ask()).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["error"]["code"], "local_limit");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.header("x-rondo-reason"), Some("local_limit"));
        assert_eq!(refused.header("x-rondo-attempts"), Some("0"));
        if leaves {
            drop((answer, client));
            stage.cut();
        } else {
            stage.end();
            let _ = soon(answer.into_body().collect()).await.unwrap();
        }
        rondo.assert_quiet().await;
        let limits = rondo.app.snapshot().routes[0].targets[0].limits.clone();
        let usage = limits.unwrap().usage(rondo.app.gateway.around.clock.mono());
        assert_eq!(usage.concurrent, 0);
    }
    let stops = rondo.metric("rondo_stops_total", &["reason=\"local_limit\""]);
    assert_eq!(stops, 2.0);
}

/// What a target's minute has of tokens at this moment.
fn tokens(rondo: &Rondo) -> u64 {
    let limits = rondo.app.snapshot().routes[0].targets[0].limits.clone();
    let usage = limits.unwrap().usage(rondo.app.gateway.around.clock.mono());
    usage.tokens
}

/// Prompt and longest answer are estimated; then what the answer tells counts, also when its client has left and the record is settled.
#[tokio::test]
async fn what_an_answer_used_takes_the_place_of_the_estimate() {
    // R-F2 R-L8
    let body = chat_body("m", true).replacen('{', "{\"max_tokens\":5000,", 1);
    let estimate = 5000 + body.len().div_ceil(4) as u64;
    for leaves in [false, true] {
        let stage = Stage::h1(EVENTS).await;
        let rondo = Rondo::start(&format!(
            "providers:\n  one: {}\nroutes:\n  - name: chat\n    models: [m]\n    targets:\n      - {{ name: one, provider: one, limits: {{ tokens_per_minute: 100000 }} }}\n    routing: {{ on_client_disconnect: drain }}\n",
            stage.upstream.provider("")
        ))
        .await;
        let mut client = Connection::h1(rondo.addr).await;
        stage.say("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");
        let sent = client.send(post("/v1/chat/completions", body.clone()));
        let answer = soon(sent).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(tokens(&rondo), estimate);
        let told =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\n";
        if leaves {
            drop((answer, client));
            let cancelled = State::Cancelled;
            rondo
                .until(|rondo| rondo.records()[0].operation.state == cancelled)
                .await;
            assert_eq!(tokens(&rondo), estimate, "what may have run is kept");
            stage.say(told);
            stage.end();
        } else {
            stage.say(told);
            stage.end();
            let _ = soon(answer.into_body().collect()).await.unwrap();
        }
        rondo.assert_quiet().await;
        assert_eq!(tokens(&rondo), 29, "the client left: {leaves}");
    }
}

/// An outage in which everything may have run is met with the floor of the budget, and then with one send an operation.
#[tokio::test]
async fn an_outage_is_not_multiplied() {
    // C22
    let rondo = Rondo::start(
        "providers:
  one: { adapter: openai, mock: { answers: [openai.server_error] } }
  two: { adapter: openai, mock: { answers: [openai.server_error] } }
routes:
  - name: chat
    models: [m]
    targets: [{ name: one, provider: one }, { name: two, provider: two }]
    routing: { fallback_strategy: [http_5xx], sticky_key_attempts: 1 }
",
    )
    .await;
    let operations = 300;
    for _ in 0..operations {
        assert_eq!(call(rondo.addr, chat("m")).await.status, 500);
    }
    rondo.assert_quiet().await;
    assert_eq!(rondo.mock("one").sends(), operations);
    let extra = rondo.mock("two").sends();
    // The floor of ten seconds and a fifth of the operations; a window that moves on while this runs may give a little more.
    assert!((100..operations).contains(&extra), "{extra} extra sends");
    let exhausted = rondo.metric("rondo_retry_budget_exhausted_total", &["route=\"chat\""]);
    assert_eq!(exhausted, (operations - extra) as f64);
}

/// A provider whose health endpoint answers what the test says, and the heads of the checks.
struct Checked {
    upstream: Upstream,
    status: Arc<AtomicU16>,
    checks: Arc<AtomicUsize>,
    heads: Arc<std::sync::Mutex<Vec<String>>>,
}

async fn checked() -> Checked {
    let status = Arc::new(AtomicU16::new(200));
    let checks = Arc::new(AtomicUsize::new(0));
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (says, counts, kept) = (Arc::clone(&status), Arc::clone(&checks), Arc::clone(&heads));
    let upstream = Upstream::start(move |mut link| {
        let (says, counts, kept) = (Arc::clone(&says), Arc::clone(&counts), Arc::clone(&kept));
        async move {
            while let Some(request) = link.request().await {
                let status = match request.head.starts_with("GET /health ") {
                    true => {
                        counts.fetch_add(1, Ordering::SeqCst);
                        kept.lock().unwrap().push(request.head);
                        says.load(Ordering::SeqCst)
                    }
                    false => 200,
                };
                let answer = format!(
                    "HTTP/1.1 {status} Said\r\nlocation: /elsewhere\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
                );
                link.write(&answer).await;
            }
        }
    })
    .await;
    Checked {
        upstream,
        status,
        checks,
        heads,
    }
}

/// An unhealthy provider gets no send while another can serve, and is back when it answers.
#[tokio::test]
async fn an_unhealthy_provider_is_passed_over() {
    // R-X2
    let one = checked().await;
    let health = ", keys: [{ name: main, secret: { literal: sk-hidden } }], health: { path: /health, interval_ms: 10, timeout_ms: 10, healthy: 2, unhealthy: 2 }";
    let rondo = Rondo::start(&format!(
        "providers:\n  one: {}\n  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}\nroutes:\n  - name: chat\n    models: [m]\n    targets: [{{ name: one, provider: one }}, {{ name: two, provider: two }}]\n",
        one.upstream.provider(health)
    ))
    .await;
    let gauge = |rondo: &Rondo| rondo.metric("rondo_provider_healthy", &["provider=\"one\""]);
    assert_eq!(gauge(&rondo), 1.0);
    // A redirect is no good answer, and is not followed.
    for status in [503, 302] {
        one.status.store(status, Ordering::SeqCst);
        rondo.until(|rondo| gauge(rondo) == 0.0).await;
        let answer = call(rondo.addr, chat("m")).await;
        assert_eq!(answer.header("x-rondo-target"), Some("two"));
        one.status.store(204, Ordering::SeqCst);
        rondo.until(|rondo| gauge(rondo) == 1.0).await;
        let answer = call(rondo.addr, chat("m")).await;
        assert_eq!(answer.header("x-rondo-target"), Some("one"));
    }
    assert!(one.checks.load(Ordering::SeqCst) >= 8);
    let heads = one.heads.lock().unwrap().join("\n").to_lowercase();
    assert!(
        !heads.contains("sk-hidden") && !heads.contains("authorization"),
        "{heads}"
    );
    assert!(!heads.contains("/elsewhere"));
}

/// The first key is shown when that is asked for, and checks end with the configuration that wanted them.
#[tokio::test]
async fn checks_follow_the_configuration() {
    // R-C2
    let one = checked().await;
    let keys = ", keys: [{ name: a, secret: { literal: sk-first } }, { name: b, secret: { literal: sk-second } }]";
    let route =
        "routes:\n  - name: chat\n    models: [m]\n    targets: [{ name: one, provider: one }]\n";
    let with = |health: &str| {
        format!(
            "providers:\n  one: {}\n{route}",
            one.upstream.provider(&format!("{keys}{health}"))
        )
    };
    let rondo = Rondo::start(&with(
        ", health: { path: /health, interval_ms: 10, timeout_ms: 10, authenticated: true }",
    ))
    .await;
    let checks = || one.checks.load(Ordering::SeqCst);
    rondo.until(|_| checks() >= 2).await;
    let heads = one.heads.lock().unwrap().join("\n");
    assert!(
        heads
            .to_lowercase()
            .contains("authorization: bearer sk-first")
    );
    assert!(!heads.contains("sk-second"));
    // Another adapter wants the credential elsewhere.
    let with_health = std::fs::read_to_string(&rondo.file).unwrap();
    let other = with_health.replace("adapter: openai", "adapter: anthropic");
    std::fs::write(&rondo.file, other).unwrap();
    let _ = rondo.app.reload().await;
    let shown = || one.heads.lock().unwrap().join("\n").to_lowercase();
    rondo
        .until(|_| shown().contains("x-api-key: sk-first"))
        .await;
    let off = format!("{}\nledger: {{ store: off }}\n", with(""));
    std::fs::write(&rondo.file, off).unwrap();
    let _ = rondo.app.reload().await;
    assert!(rondo.app.snapshot().providers[0].health.is_none());
    assert!(
        !rondo
            .app
            .telemetry
            .render()
            .contains("rondo_provider_healthy{")
    );
    // The task ends at its next turn; from then on the count stands still.
    rondo.until(|rondo| rondo.app.health_checks() == 0).await;
}

/// C123: a stream is under way until its end and not until its header: ten clients whose streams last never have more than two at once.
#[tokio::test]
async fn a_cap_holds_for_streams_that_last() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (finish, finished) = tokio::sync::watch::channel(false);
    let upstream = {
        let (open, most) = (Arc::clone(&open), Arc::clone(&most));
        Upstream::start(move |mut link| {
            let (open, most) = (Arc::clone(&open), Arc::clone(&most));
            let mut finished = finished.clone();
            async move {
                while link.request().await.is_some() {
                    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let delta = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
                    link.write(&format!("{EVENTS}{:x}\r\n{delta}\r\n", delta.len()))
                        .await;
                    finished.wait_for(|finished| *finished).await.unwrap();
                    open.fetch_sub(1, Ordering::SeqCst);
                    link.write("0\r\n\r\n").await;
                }
            }
        })
        .await
    };
    let rondo = Rondo::start(&format!(
        "providers:\n  one: {}\nroutes:\n  - name: chat\n    models: [m]\n    targets:\n      - {{ name: one, provider: one, limits: {{ concurrent: 2 }} }}\n",
        upstream.provider("")
    ))
    .await;
    let ask = || post("/v1/chat/completions", chat_body("m", true));
    let addr = rondo.addr;
    let asking: Vec<_> = (0..10)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = Connection::h1(addr).await;
                let answer = soon(client.send(ask())).await.unwrap();
                (client, answer)
            })
        })
        .collect();
    let mut streams = Vec::new();
    for asked in asking {
        let (client, answer) = soon(asked).await.unwrap();
        match answer.status().as_u16() {
            200 => streams.push((client, answer)),
            status => assert_eq!(status, 429),
        }
    }
    assert_eq!(streams.len(), 2);
    assert_eq!(open.load(Ordering::SeqCst), 2);
    finish.send_replace(true);
    for (_client, answer) in streams {
        let _ = soon(answer.into_body().collect()).await.unwrap();
    }
    rondo.idle().await;
    assert_eq!(call(rondo.addr, ask()).await.status, 200);
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(upstream.requests(), 3);
    rondo.assert_quiet().await;
}

/// C125: streams that fail, however they fail and more of them than there are slots, leave every slot free.
#[tokio::test]
async fn failed_streams_leave_no_slot_behind() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = free.local_addr().unwrap();
    drop(free);
    let rondo = Rondo::start(&format!(
        "providers:
  one: {{ adapter: openai, mock: {{ loop: false, answers: [{{ preset: reset, times: 3 }}, {{ preset: openai.server_error, times: 3 }},
    {{ preset: openai.stream_error, times: 3 }}, ok] }} }}
  gone: {{ adapter: openai, base_url: 'http://{closed}' }}
routes:
  - {{ name: chat, models: [m], targets: [{{ name: one, provider: one, limits: {{ concurrent: 2 }} }}], routing: {{ sticky_key_attempts: 1 }} }}
  - {{ name: away, models: [n], targets: [{{ name: gone, provider: gone, limits: {{ concurrent: 2 }} }}] }}
"
    ))
    .await;
    for _ in 0..9 {
        let answer = call(
            rondo.addr,
            post("/v1/chat/completions", chat_body("m", true)),
        )
        .await;
        assert!([500, 502].contains(&answer.status.as_u16()), "{answer:?}");
    }
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    for _ in 0..3 {
        let answer = call(
            rondo.addr,
            post("/v1/chat/completions", chat_body("n", true)),
        )
        .await;
        assert_eq!(answer.status, 502, "{answer:?}");
    }
    rondo.assert_quiet().await;
    let now = rondo.app.gateway.around.clock.mono();
    for route in &rondo.app.snapshot().routes {
        let limits = route.targets[0].limits.clone().unwrap();
        assert_eq!(limits.usage(now).concurrent, 0, "{}", route.name);
    }
}

/// C182: two operations leave the first target at the same instant, and the second one has one place: one is served, the other is told
/// when there is room. Nobody looks first and takes later.
#[tokio::test]
async fn a_place_at_the_next_target_is_taken_in_one_step() {
    // R-F1
    let rondo = Rondo::start(
        "providers:
  one: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 50, delay_ms: 150 }] } }
  two: { adapter: openai, mock: { answers: [ok] } }
routes:
  - name: chat
    models: [m]
    targets:
      - { name: one, provider: one }
      - { name: two, provider: two, limits: { requests_per_minute: 1 } }
    routing: { fallback_strategy: [http_429, rate_limiting] }
",
    )
    .await;
    let (first, second) = tokio::join!(call(rondo.addr, chat("m")), call(rondo.addr, chat("m")));
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
    rondo.assert_quiet().await;
    assert_eq!(rondo.mock("two").sends(), 1);
}
