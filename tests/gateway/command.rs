//! The command line from outside, where it meets a process: what `run` refuses as `check` does, and the way into the background.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::support::client::{call, chat};
use crate::support::process::{command, config, free_address, run};
use crate::support::{until, write_config};

const GOOD: &str = "providers:\n  one: { adapter: openai, mock: { answers: [ok] } }\nroutes:\n  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }\n";

struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

fn rondo(args: &[&str]) -> Done {
    let Output {
        status,
        stdout,
        stderr,
    } = run(args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done {
        code: status.code(),
        out: text(stdout),
        err: text(stderr),
    }
}

fn with_file(args: &[&str], yaml: &str) -> (Done, PathBuf) {
    let file = write_config(yaml);
    let done = rondo(&[args, &["-c", file.to_str().unwrap()]].concat());
    std::fs::remove_file(&file).unwrap();
    (done, file)
}

/// Every error in one go, each as FILE:LINE:COL: path.to.key: message; exit 2. `run` refuses the same file in the same words.
#[test]
fn bad_files_are_refused_with_every_error_and_its_place() {
    // R-C1
    let bad = "providers:\n  one: { adapter: nobody, colour: red }\nroutes:\n  - { name: chat, models: [m], models: [n], deadline_ms: 0, targets: [{ name: first, provider: two }] }\n";
    for command in ["check", "run"] {
        let (done, file) = with_file(&[command], bad);
        assert_eq!(
            (done.code, done.out.as_str()),
            (Some(2), ""),
            "{command}: {}",
            done.err
        );
        let lines: Vec<_> = done.err.lines().collect();
        assert!(lines.len() >= 4, "{command}: {}", done.err);
        let mut places = Vec::new();
        for line in &lines {
            let rest = line.strip_prefix(&format!("{}:", file.display()));
            let rest = rest.unwrap_or_else(|| panic!("{line}"));
            let (at, message) = rest.split_once(": ").unwrap();
            let (row, column) = at.split_once(':').unwrap();
            places.push((
                row.parse::<usize>().unwrap(),
                column.parse::<usize>().unwrap(),
            ));
            assert!(message.contains(": "), "{line}: a path, then what is wrong");
        }
        assert!(places.is_sorted(), "in the order of the file: {lines:?}");
        for wanted in [
            "providers.one.adapter: ",
            "providers.one.colour: ",
            "routes[0].deadline_ms: ",
        ] {
            assert!(
                lines.iter().any(|line| line.contains(wanted)),
                "{wanted} in {lines:?}"
            );
        }
    }
}

/// Warnings are said and do not refuse.
#[test]
fn check_warns_and_accepts() {
    // R-S3
    let yaml = GOOD.replace(
        "targets:",
        "routing: { mode: priority_failover, max_target_attempts: 3, max_upstream_sends: 4, exhaustion_retry: { max_rounds: 1, max_wait_ms: 100 } }, targets:",
    );
    let (done, file) = with_file(&["check"], &yaml);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.err.starts_with(&format!("{}:4:", file.display())),
        "{}",
        done.err
    );
    assert!(done.err.contains("max_upstream_sends"), "{}", done.err);
}

/// A secret that is not there refuses the file and is named; one that is there is not shown.
#[test]
fn a_missing_secret_is_named() {
    // R-C4 R-X2
    let keys = "keys: [{ name: a, secret: { env: RONDO_TEST_UNSET } }, { name: b, secret: { literal: sk-shown-to-nobody } }], mock";
    for command in ["check", "run"] {
        let (done, _) = with_file(&[command], &GOOD.replace("mock", keys));
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains("RONDO_TEST_UNSET"), "{}", done.err);
        assert!(!done.err.contains("sk-shown-to-nobody"), "{}", done.err);
    }
}

/// A file that is not there.
#[test]
fn a_missing_file_is_exit_2() {
    // R-C1
    for command in ["check", "run"] {
        let done = rondo(&[command, "-c", "/nowhere/rondo.yaml"]);
        assert_eq!(done.code, Some(2));
        assert!(done.err.contains("/nowhere/rondo.yaml"), "{}", done.err);
    }
}

/// What is no command is refused with a hint.
#[test]
fn an_unknown_command_is_refused() {
    let done = rondo(&["dance"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));
    assert!(done.err.contains("Usage"), "{}", done.err);
}

/// `--daemon` leaves once the file is known to be good, prints the id of the process that stays, and that one serves, reloads and drains.
#[tokio::test]
async fn a_daemon_does_all_that_a_foreground_process_does() {
    // R-C2 R-C3
    let (addr, admin) = (free_address(), free_address());
    let file = write_config(&config(addr, admin, "", GOOD));
    let arguments = ["run", "--daemon", "-c", file.to_str().unwrap()];
    let started = command(&arguments).stderr(Stdio::null()).output().unwrap();
    assert_eq!(started.status.code(), Some(0));
    let id = String::from_utf8(started.stdout).unwrap();
    let id = id.trim();
    let signal = |name: &str| {
        assert!(
            Command::new("kill")
                .args(["-s", name, id])
                .status()
                .unwrap()
                .success()
        );
    };
    let accepts = || std::net::TcpStream::connect(addr).is_ok();
    until(accepts).await;
    let answer = call(addr, chat("m")).await;
    assert_eq!(
        answer.status, 200,
        "an embedded provider answers: {answer:?}"
    );
    let renamed = GOOD.replace("name: first", "name: renamed");
    let renamed = config(addr, admin, "", &renamed) + "ledger: { store: off }\n";
    std::fs::write(&file, renamed).unwrap();
    signal("HUP");
    while call(addr, chat("m")).await.header("x-rondo-target") != Some("renamed") {}
    signal("TERM");
    until(|| !accepts()).await;
    std::fs::remove_file(&file).unwrap();

    let (done, _) = with_file(&["run", "--daemon"], "routes: []\n");
    assert_eq!(
        (done.code, done.out.as_str()),
        (Some(2), ""),
        "{}",
        done.err
    );
}
