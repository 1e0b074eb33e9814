//! Reloads: a whole new snapshot or none, nothing in flight disturbed, and what was learned kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use rondo::app::reload::Reloaded;

use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, call, chat, chat_body};
use crate::support::process::{Process, config, free_address};
use crate::support::{Rondo, soon, write_config};

const CHAT: &str = "/v1/chat/completions";

fn providers(one: &str) -> String {
    format!(
        "providers:\n  one: {{ adapter: openai, mock: {{ answers: [{one}] }} }}\n  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}\n"
    )
}

fn route(targets: &str, rest: &str) -> String {
    format!("routes:\n  - {{ name: chat, models: [m], targets: [{targets}], {rest} }}\n")
}

const BOTH: &str = "{ name: first, provider: one }, { name: second, provider: two }";
const SECOND: &str = "{ name: second, provider: two }";
const WAITING: &str = "routing: { mode: priority_failover, max_target_attempts: 1, max_upstream_sends: 2, exhaustion_retry: { max_rounds: 1, max_wait_ms: 30000 } }";

async fn reload(rondo: &Rondo, yaml: &str) -> Reloaded {
    std::fs::write(&rondo.file, format!("{yaml}\nledger: {{ store: off }}\n")).unwrap();
    rondo.app.reload().await
}

fn reloads(rondo: &Rondo, result: &str) -> f64 {
    rondo.metric(
        "rondo_config_reloads_total",
        &[&format!("result=\"{result}\"")],
    )
}

#[track_caller]
fn swapped(outcome: Reloaded) -> (Vec<String>, Vec<String>) {
    match outcome {
        Reloaded::Swapped {
            changed,
            needs_restart,
        } => (changed, needs_restart),
        other => panic!("{other:?}"),
    }
}

/// C190: a stream whose target is removed ends as it would have ended; new requests do not go there.
#[tokio::test]
async fn a_stream_outlives_its_target() {
    // R-C2
    let slow = "{ text: 'one two three', chunks: 3, gap_ms: 200 }";
    let rondo = Rondo::start(&(providers(slow) + &route(BOTH, ""))).await;
    let mut stream = Caller::ask(Way::H1Close, rondo.addr, CHAT, &chat_body("m", true)).await;
    stream.read_to("200 OK").await;
    let (changed, restart) = swapped(reload(&rondo, &(providers(slow) + &route(SECOND, ""))).await);
    assert_eq!(changed[0], "routes.chat.targets.first: removed");
    assert_eq!(restart, Vec::<String>::new());
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
    stream.read_to("[DONE]").await;
    assert_eq!(rondo.mock("one").sends(), 1);
    stream.leave();
    rondo.assert_quiet().await;
    let succeeded = rondo.metric("rondo_requests_total", &["outcome=\"succeeded\""]);
    assert_eq!(succeeded, 2.0);
}

/// A file that cannot be used changes nothing, and says so in the metrics and for the admin plane; a good one mends it.
#[tokio::test]
async fn a_bad_file_keeps_the_last_good_one() {
    // R-C2 R-C1
    let good = providers("ok") + &route(BOTH, "");
    let rondo = Rondo::start(&good).await;
    let before = rondo.app.snapshot();
    let bad = [
        "routes: [".to_owned(),
        good.replace("provider: two", "provider: three"),
        good.replace("adapter: openai", "adapter: nobody"),
        String::new(),
    ];
    for (number, bad) in bad.iter().enumerate() {
        let Reloaded::Refused(errors) = reload(&rondo, bad).await else {
            panic!("{bad} was accepted");
        };
        let file = rondo.file.display().to_string();
        assert!(
            errors.iter().all(|error| error.starts_with(&file)),
            "{errors:?}"
        );
        assert_eq!(rondo.app.last_load().error, Some(errors.join("\n")));
        assert_eq!(reloads(&rondo, "failure"), number as f64 + 1.0);
        assert!(std::sync::Arc::ptr_eq(&before, &rondo.app.snapshot()));
        assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    }
    let loaded_at = rondo.app.last_load().loaded_at;
    assert!(matches!(reload(&rondo, &good).await, Reloaded::Unchanged));
    assert_eq!(rondo.app.last_load().error, None);
    assert_eq!(rondo.app.last_load().loaded_at, loaded_at);
    swapped(reload(&rondo, &(providers("ok") + &route(SECOND, ""))).await);
    assert!(rondo.app.last_load().loaded_at > loaded_at);
    assert_eq!(
        (reloads(&rondo, "unchanged"), reloads(&rondo, "success")),
        (1.0, 1.0)
    );
    rondo.assert_quiet().await;
}

/// A file that is gone is as bad as one that is wrong.
#[tokio::test]
async fn a_missing_file_keeps_the_last_good_one() {
    // R-C2
    let rondo = Rondo::start(&(providers("ok") + &route(BOTH, ""))).await;
    std::fs::remove_file(&rondo.file).unwrap();
    assert!(matches!(rondo.app.reload().await, Reloaded::Refused(_)));
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    assert_eq!(reloads(&rondo, "failure"), 1.0);
}

/// C191: a key file is read again; what began with the old key, even if it sleeps, goes on with the old key.
#[tokio::test]
async fn a_rotated_key_is_for_new_operations() {
    // R-C2 R-C4 R-X2
    let key = KeyFile::new("old");
    let script = "{ preset: openai.throttle, retry_after: 0.6 }, ok, ok";
    let config = format!(
        "providers:\n  one: {{ adapter: openai, keys: [{{ name: main, secret: {{ file: '{}' }} }}], mock: {{ answers: [{script}] }} }}\n{}",
        key.0.display(),
        route(
            "{ name: first, provider: one }",
            &WAITING.replace("exhaustion", "cooldown: { max_ms: 0 }, exhaustion")
        ),
    );
    let rondo = Rondo::start(&config).await;
    let sleeper = tokio::spawn(call(rondo.addr, chat("m")));
    rondo.until_waiting(1).await;
    key.rotate("new");
    let (changed, _) = swapped(rondo.app.reload().await);
    assert_eq!(changed, ["providers.one.keys.main.secret"]);
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    let slept = soon(sleeper).await.unwrap();
    assert_eq!(
        (slept.status.as_u16(), slept.header("x-rondo-round")),
        (200, Some("2"))
    );
    let seen = rondo.mock("one").requests();
    let keys: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("authorization").unwrap())
        .collect();
    assert_eq!(keys, ["Bearer old", "Bearer new", "Bearer old"]);
    rondo.assert_quiet().await;
}

/// A key file that went missing refuses the whole reload.
#[tokio::test]
async fn a_missing_key_refuses_the_reload() {
    // R-C4 R-C2
    let key = KeyFile::new("old");
    let config = format!(
        "providers:\n  one: {{ adapter: openai, keys: [{{ name: main, secret: {{ file: '{}' }} }}], mock: {{ answers: [ok] }} }}\n{}",
        key.0.display(),
        route("{ name: first, provider: one }", "")
    );
    let rondo = Rondo::start(&config).await;
    std::fs::remove_file(&key.0).unwrap();
    let Reloaded::Refused(errors) = rondo.app.reload().await else {
        panic!("accepted")
    };
    assert!(
        errors[0].contains("providers.one.keys[0].secret"),
        "{errors:?}"
    );
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
}

/// What was learned of targets, and who waits, survives.
#[tokio::test]
async fn cooldowns_and_waiters_survive() {
    // R-C2 R-S12 R-B6
    let throttle = "{ preset: openai.throttle, retry_after: 20 }";
    let config = |deadline: u64| {
        providers(throttle)
            + &route(
                "{ name: first, provider: one }",
                &format!("deadline_ms: {deadline}, {WAITING}"),
            )
    };
    let rondo = Rondo::start(&config(60_000)).await;
    let sleeper = Caller::ask(Way::H1Close, rondo.addr, CHAT, &chat_body("m", false)).await;
    rondo.until_waiting(1).await;
    let before = rondo.app.snapshot();
    let (changed, _) = swapped(reload(&rondo, &config(50_000)).await);
    assert_eq!(changed, ["routes.chat.deadline_ms"]);
    assert!(!std::sync::Arc::ptr_eq(&before, &rondo.app.snapshot()));
    assert_eq!(rondo.waiting(), 1, "the new snapshot knows who waits");
    assert_eq!(rondo.metric("rondo_exhaustion_waiting", &[]), 1.0);
    let second = Caller::ask(Way::H2Reset, rondo.addr, CHAT, &chat_body("m", false)).await;
    rondo.until_waiting(2).await;
    assert_eq!(rondo.mock("one").sends(), 1, "it still cools");
    sleeper.leave();
    second.leave();
    rondo.assert_quiet().await;
}

/// What cannot change while the process runs is listed, and goes on being listed until it is restarted.
#[tokio::test]
async fn what_needs_a_restart_is_listed() {
    // R-C2
    let config = |server: &str| {
        format!(
            "server: {{ {server} }}\n{}{}",
            providers("ok"),
            route(BOTH, "")
        )
    };
    let rondo = Rondo::start(&config("threads: 1")).await;
    let wanted = [
        "server.threads: changed; takes effect after a restart",
        "server.shutdown_grace_ms: changed; takes effect after a restart",
    ];
    for headers in [true, false] {
        let yaml = config(&format!(
            "threads: 2, shutdown_grace_ms: 5, route_headers: {headers}"
        ));
        let (_, restart) = swapped(reload(&rondo, &yaml).await);
        assert_eq!(restart, wanted);
    }
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(
        answer.header("x-rondo-target"),
        None,
        "what needs no restart is in force"
    );
    let (_, restart) = swapped(reload(&rondo, &config("threads: 1")).await);
    assert_eq!(restart, Vec::<String>::new());
}

/// Requests and reloads at the same time: every request is served by one snapshot or the other, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_race_with_reloads() {
    // R-C2
    let config =
        |name: &str| providers("ok") + &route(&format!("{{ name: {name}, provider: one }}"), "");
    let rondo = Rondo::start(&config("a")).await;
    let addr = rondo.addr;
    let asking = tokio::spawn(async move {
        let mut connection = Connection::h1(addr).await;
        for _ in 0..200 {
            let answer = connection.call(chat("m")).await;
            assert_eq!(answer.status, 200);
            assert!(["a", "b"].contains(&answer.header("x-rondo-target").unwrap()));
        }
    });
    let mut turn = 0;
    while !asking.is_finished() {
        turn += 1;
        swapped(reload(&rondo, &config(["a", "b"][turn % 2])).await);
    }
    soon(asking).await.unwrap();
    assert!(turn > 1);
    rondo.assert_quiet().await;
    assert_eq!(reloads(&rondo, "success"), turn as f64);
}

/// C187: three signals in a burst; whatever they are merged to, the last content is in force. A bad file is loud and changes nothing.
#[tokio::test]
async fn the_last_content_of_a_burst_wins() {
    // R-C2
    let config = |model: &str| {
        providers("ok") + &route(BOTH, "").replace("models: [m]", &format!("models: [{model}]"))
    };
    let process = Process::start("", &config("m0")).await;
    let mut connection = Connection::h1(process.addr).await;
    for burst in 0..3 {
        for turn in 1..=3 {
            process.write("", &config(&format!("m{burst}{turn}")));
            process.signal("HUP");
        }
        let last = format!("m{burst}3");
        soon(async { while connection.call(chat(&last)).await.status != 200 {} }).await;
        assert_eq!(
            connection.call(chat(&format!("m{burst}2"))).await.status,
            404
        );
    }
    process.write("threads: 3", "routes: []\n");
    process.signal("HUP");
    process
        .until_logged("the last good configuration stays in force", 1)
        .await;
    let refused = process.until_logged("configuration refused: ", 1).await;
    assert!(
        refused[0].contains(&format!("{}:", process.file.display())),
        "{refused:?}"
    );
    assert_eq!(connection.call(chat("m23")).await.status, 200);
    process.write("threads: 3", &config("m"));
    process.signal("HUP");
    process
        .until_logged("needs restart: server.threads", 1)
        .await;
    assert_eq!(connection.call(chat("m")).await.status, 200);
}

/// A signal that comes while the process still reads its first configuration neither ends it nor is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_during_the_start_is_kept() {
    // R-C2
    let (addr, admin) = (free_address(), free_address());
    let pipe = write_config("");
    std::fs::remove_file(&pipe).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Opening a pipe for writing returns when the other side has opened it for reading.
    let open = async || {
        let pipe = pipe.clone();
        let opened = move || std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
        soon(tokio::task::spawn_blocking(opened)).await.unwrap()
    };
    let text = |target: &str| {
        let rest = providers("ok") + &route(&format!("{{ name: {target}, provider: one }}"), "");
        config(addr, admin, "", &rest) + "ledger: { store: off }\n"
    };
    let process = Process::launch(pipe.clone(), addr, admin, &[]);
    let mut first = open().await;
    process.signal("HUP");
    first.write_all(text("first").as_bytes()).unwrap();
    drop(first);
    process.until_accepting(true).await;
    // The reload that was asked for reads the pipe once more.
    let mut second = open().await;
    second.write_all(text("second").as_bytes()).unwrap();
    drop(second);
    process.until_logged("configuration reloaded", 1).await;
    let answer = call(addr, chat("m")).await;
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
}

/// A key in a file beside the configuration.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(key: &str) -> KeyFile {
        let name = format!("key-{}-{:x}", std::process::id(), rand::random::<u64>());
        let file = KeyFile(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        std::fs::write(&file.0, format!("{key}\n")).unwrap();
        file
    }

    /// Replaces the file in one step, as secret stores do.
    fn rotate(&self, key: &str) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, key).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
