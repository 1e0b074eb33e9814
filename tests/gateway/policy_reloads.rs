//! Policies that change while requests are under way: nobody fails, who has begun goes on as it began, and what was learned stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rondo::app::reload::Reloaded;
use tokio::sync::Notify;

use crate::support::client::{Connection, call, chat, chat_body, request, whole};
use crate::support::raw::Upstream;
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";

/// One file with this routing of its route and these parts at the top. The first target throttles for longer than any test takes.
fn config(routing: &str, priority: u32, rest: &str) -> String {
    format!(
        r#"
providers:
  busy: {{ adapter: openai, mock: {{ answers: [{{ preset: openai.throttle, retry_after: 50 }}] }} }}
  one: {{ adapter: openai, keys: [{{ name: a, secret: {{ literal: key-of-one }} }}], mock: {{ answers: [ok] }} }}
  two: {{ adapter: openai, keys: [{{ name: b, secret: {{ literal: key-of-two }} }}], mock: {{ answers: [ok] }} }}
routes:
  - name: chat
    models: [m]
    targets:
      - {{ name: busy, provider: busy }}
      - {{ name: first, provider: one, priority: {priority} }}
      - {{ name: second, provider: two, priority: 2 }}
    {routing}
client_keys: {{ keys: [{{ name: app, secret: {{ literal: sk-of-app }} }}] }}
rules:
  - {{ name: south, when: {{ header: {{ name: x-tenant, value: acme }} }}, actions: [{{ restrict_targets: [second] }}] }}
{rest}
ledger: {{ store: off }}
"#
    )
}

const WARM: &str = "routing: { scheduling_mode: cache_affinity }";

/// Every way to order candidates, some from the route, some from a profile or the scheduler.
fn variants() -> Vec<String> {
    let profiles = "profiles: { even: { scheduling_mode: load_balance }, by-user: { hash_on: 'header:x-user' } }";
    vec![
        config(WARM, 1, ""),
        config("profile: even", 1, profiles),
        config("profile: by-user", 2, profiles),
        config("routing: { priority_mode: global_key }", 3, ""),
        config(
            "deadline_ms: 50000",
            1,
            "scheduler: { scheduling_mode: load_balance }",
        ),
        config("routing: { sticky_key_attempts: 4, max_retries: 2 }", 3, ""),
    ]
}

async fn reload(rondo: &Rondo, yaml: &str) {
    std::fs::write(&rondo.file, yaml).unwrap();
    let outcome = rondo.app.reload().await;
    assert!(matches!(outcome, Reloaded::Swapped { .. }), "{outcome:?}");
}

async fn app_goes_to(rondo: &Rondo, tenant: &str) -> String {
    let headers = [("authorization", "Bearer sk-of-app"), ("x-tenant", tenant)];
    let body = whole(chat_body("m", false));
    let answer = call(rondo.addr, request(CHAT, &headers, body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-rondo-target").unwrap().to_owned()
}

/// Policies change as fast as they can while clients ask over both protocols: no request fails, the cooldown of the first target holds over
/// all of them, and a client finds back to where its cache is warm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_change_under_load() {
    // R-C2 R-S12
    let variants = variants();
    let rondo = Rondo::start(&variants[0]).await;
    // What is learned before: the first target cools, and one client was served by the second.
    assert_eq!(app_goes_to(&rondo, "other").await, "first");
    assert_eq!(app_goes_to(&rondo, "acme").await, "second");
    assert_eq!(rondo.mock("busy").sends(), 1);

    let turns = Arc::new(AtomicUsize::new(0));
    let least = 3 * variants.len();
    let asking: Vec<_> = (0..8)
        .map(|client| {
            let (addr, turns) = (rondo.addr, Arc::clone(&turns));
            tokio::spawn(async move {
                let mut connection = match client % 2 {
                    0 => Connection::h1(addr).await,
                    _ => Connection::h2(addr).await,
                };
                let mut asked = 0;
                while asked < 50 || turns.load(Ordering::SeqCst) < least {
                    let user = format!("user-{client}-{asked}");
                    let headers = [("x-user", user.as_str())];
                    let ask = request(CHAT, &headers, whole(chat_body("m", asked % 3 == 0)));
                    let answer = connection.call(ask).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    let target = answer.header("x-rondo-target").unwrap();
                    assert!(["first", "second"].contains(&target), "{target}");
                    assert_eq!(answer.header("x-rondo-attempts"), Some("1"));
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    while !asking.iter().all(tokio::task::JoinHandle::is_finished) {
        let turn = turns.fetch_add(1, Ordering::SeqCst) + 1;
        reload(&rondo, &variants[turn % variants.len()]).await;
    }
    let mut asked = 0;
    for client in asking {
        asked += soon(client).await.unwrap();
    }
    assert!(turns.load(Ordering::SeqCst) >= least);
    let good = rondo.metric("rondo_requests_total", &["outcome=\"succeeded\""]);
    assert_eq!(good, f64::from(asked + 2));
    assert_eq!(rondo.metric("rondo_requests_total", &[]), good);

    assert_eq!(rondo.mock("busy").sends(), 1, "it still cools");
    // Back to affinity, under another name.
    let profile = "profiles: { warm: { scheduling_mode: cache_affinity } }";
    reload(&rondo, &config("profile: warm", 1, profile)).await;
    assert_eq!(app_goes_to(&rondo, "other").await, "second", "warm there");
    // Where the target is gone, so is what was known of it.
    let without = config(WARM, 1, "").replace(
        "{ name: second, provider: two, priority: 2 }",
        "{ name: third, provider: two, priority: 2 }",
    );
    reload(&rondo, &without.replace("[second]", "[third]")).await;
    assert_eq!(app_goes_to(&rondo, "other").await, "first");
    assert_eq!(rondo.mock("busy").sends(), 1);
    rondo.assert_quiet().await;
}

/// What waits for its answer while the policies change is decided by those it began with: it fails over, though the new ones would not, to a
/// target that is theirs no more, and its record names the old profile.
#[tokio::test]
async fn who_has_begun_goes_on_as_it_began() {
    // R-C2 R-F1
    let (arrived, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = {
        let (arrived, released) = (Arc::clone(&arrived), Arc::clone(&released));
        Upstream::start(move |mut link| {
            let (arrived, released) = (Arc::clone(&arrived), Arc::clone(&released));
            async move {
                while link.request().await.is_some() {
                    arrived.notify_one();
                    released.notified().await;
                    let body = r#"{"error":{"message":"m","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
                    link.write(&format!(
                        "HTTP/1.1 429 Too Many\r\ncontent-type: application/json\r\nretry-after: 5\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    ))
                    .await;
                }
            }
        })
        .await
    };
    let config = |profile: &str, targets: &str| {
        format!(
            r#"
providers:
  gate: {}
  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes: [{{ name: chat, models: [m], profile: {profile}, targets: [{{ name: gate, provider: gate }}, {targets}] }}]
profiles: {{ old: {{}}, new: {{ mode: primary_only }} }}
ledger: {{ store: off }}
"#,
            gate.provider("")
        )
    };
    let rondo = Rondo::start(&config("old", "{ name: left, provider: two }")).await;
    let asked = tokio::spawn(call(rondo.addr, chat("m")));
    soon(arrived.notified()).await;
    reload(&rondo, &config("new", "{ name: other, provider: two }")).await;
    released.notify_one();
    let answer = soon(asked).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-target"), Some("left"));
    // Who comes now meets the new policies, and what the old operation learned.
    let refused = call(rondo.addr, chat("m")).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(gate.requests(), 1, "the cooldown holds");
    rondo.assert_quiet().await;
    let profiles: Vec<_> = rondo
        .records()
        .iter()
        .map(|record| record.operation.profile.to_string())
        .collect();
    assert_eq!(profiles, ["old", "new"]);
}
