//! The binary's own commands: what they print, where, and how they exit. Nothing listens here.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::write_config;

const SECRET: &str = "sk-never-to-be-seen";

fn rondo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondo"));
    command
        .args(args)
        .env_remove("RONDO_CONFIG")
        .env_remove("RUST_LOG");
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A configuration that goes away with the test.
struct File(PathBuf);

impl File {
    fn new(yaml: &str) -> File {
        File(write_config(yaml))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn good() -> File {
    File::new(&format!(
        "
providers:
  one: {{ adapter: openai, keys: [{{ name: main, secret: {{ literal: {SECRET} }} }}] }}
  two: {{ adapter: anthropic, keys: [{{ name: spare, secret: {{ literal: {SECRET} }} }}] }}
routes:
  - name: chat
    models: [fast, slow-*]
    targets: [{{ name: first, provider: one, model: gpt-4o }}, {{ name: second, provider: two }}]
"
    ))
}

fn bad() -> File {
    File::new("routes: [{ name: a, models: [m], targets: [{ provider: nowhere }], speed: 3 }]\n")
}

#[test]
fn check_says_good_and_exits_zero() {
    let file = good();
    let output = rondo(&["check", "-c", file.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout).contains("good: 1 routes, 2 providers"),
        "{output:?}"
    );
}

#[test]
fn check_prints_every_error_with_its_place_and_exits_two() {
    // R-C1
    let file = bad();
    let output = rondo(&["check", "-c", file.path()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let errors: Vec<&str> = text(&output.stderr).lines().collect();
    assert!(errors.len() >= 2, "{errors:?}");
    let place = format!("{}:1:", file.path());
    assert!(
        errors.iter().all(|line| line.starts_with(&place)),
        "{errors:?}"
    );
    assert!(
        errors.iter().any(|line| line.contains("routes[0].speed: ")),
        "{errors:?}"
    );
}

#[test]
fn a_file_that_is_not_there_exits_two() {
    for command in ["check", "run"] {
        let output = rondo(&[command, "-c", "no/such/file.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            text(&output.stderr).contains("no/such/file.yaml"),
            "{output:?}"
        );
    }
    let output = rondo(&["explain", "-c", "no/such/file.yaml", "--model", "m"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn schema_is_json_schema_on_stdout() {
    let output = rondo(&["schema"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert!(schema["properties"]["routes"].is_object());
}

#[test]
fn explain_prints_text_and_json_without_secrets() {
    // R-X2
    let file = good();
    let output = rondo(&["explain", "-c", file.path(), "--model", "slow-1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    for part in [
        "Route     chat (by the prefix slow-*)",
        "1. first = one",
        "Second round: no",
    ] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert!(!told.contains(SECRET));

    let output = rondo(&["explain", "-c", file.path(), "--model", "fast", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!text(&output.stdout).contains(SECRET));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["candidates"][0]["key"], "main");
    assert_eq!(json["excluded"][0]["reason"], "api_format");
}

#[test]
fn explain_takes_format_body_stream_and_headers() {
    let file = good();
    let body = File::new("");
    std::fs::write(&body.0, r#"{"model":"fast","messages":[]}"#).unwrap();
    let output = rondo(&[
        "explain",
        "-c",
        file.path(),
        "-m",
        "fast",
        "--api",
        "anthropic_messages",
        "--body",
        body.path(),
        "--stream",
        "--header",
        "x-stainless-retry-count: 2",
        "--header",
        "x-request-timeout-ms: 1500",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let request = &json["request"];
    assert_eq!(request["api"], "anthropic_messages");
    assert_eq!(request["stream"], true);
    assert_eq!(request["caller_retry"], true);
    assert_eq!(json["budgets"]["deadline_ms"], 1500);
    assert_eq!(json["candidates"][0]["target"], "second");
}

#[test]
fn explain_exits_two_when_there_is_no_plan() {
    let file = good();
    let fails = |args: &[&str], message: &str| {
        let mut all = vec!["explain", "-c", file.path()];
        all.extend(args);
        let output = rondo(&all);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(told.contains(message), "{message} is missing in {told}");
    };
    fails(&["-m", "fats"], "the nearest names are: fast, slow-*");
    fails(
        &["-m", "fast", "--api", "gemini"],
        "no target speaks gemini",
    );
    fails(&["-m", "fast", "--api", "telegraph"], "openai_chat");
    fails(
        &["-m", "fast", "--body", "no/such/body.json"],
        "no/such/body.json",
    );
    fails(&["-m", "fast", "--header", "no colon"], "name: value");
    fails(&[], "--model");
}
