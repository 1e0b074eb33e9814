//! The binary's own commands: what they print, where, and how they exit. Nothing listens here.

use std::io::Write;
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

/// Runs the binary with something on its stdin.
fn rondo_with(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rondo"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = pipe.write_all(stdin);
        });
        child.wait_with_output().unwrap()
    })
}

const CORPUS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/responses.jsonl"
);

#[test]
fn classify_agrees_with_the_whole_corpus() {
    // R-A1 R-A2 R-A3 R-A4
    let corpus = std::fs::read(CORPUS).unwrap();
    let outputs = [
        rondo(&["classify", "--json", CORPUS]),
        rondo_with(&["classify", "--json", "-"], &corpus),
    ];
    for output in outputs {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(text(&output.stderr), "");
        let (rows, found) = (text(&corpus).lines(), text(&output.stdout).lines());
        let mut compared = 0;
        for (row, found) in rows.zip(found) {
            let row: Value = serde_json::from_str(row).unwrap();
            let found: Value = serde_json::from_str(found).unwrap();
            for member in ["id", "class", "certified_pre_execution", "retry_after_ms"] {
                assert_eq!(row[member], found[member], "{row}");
            }
            assert!(found["rule"].is_string());
            assert_eq!(found.as_object().unwrap().len(), 5);
            compared += 1;
        }
        assert_eq!(compared, 192);
        assert_eq!(text(&output.stdout).lines().count(), 192);
    }
}

#[test]
fn classify_prints_a_table_for_people() {
    let output = rondo(&["classify", CORPUS]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 193);
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(
        words(lines[0]),
        ["id", "class", "certified", "delay", "rule"]
    );
    let throttled = lines
        .iter()
        .find(|line| line.starts_with("bedrock-429-amz-retry-after "));
    let wanted = [
        "bedrock-429-amz-retry-after",
        "throttle",
        "yes",
        "1500",
        "ms",
        "bedrock.429.throttling",
    ];
    assert_eq!(words(throttled.unwrap()), wanted);
}

#[test]
fn classify_names_bad_lines_and_prints_the_others() {
    let long = format!("{{\"body\":\"{}\"}}", "x".repeat(2 << 20));
    let lines = [
        r#"{"id":"a","status":429,"provider":"openai"}"#,
        "",
        "{",
        &long,
        r#"{"id":"b","status":429,"provider":"acme"}"#,
        r#"{"id":"c","status":401,"provider":"openai"}"#,
    ];
    let output = rondo_with(&["classify", "--json", "-"], lines.join("\n").as_bytes());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let ids: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone())
        .collect();
    assert_eq!(ids, ["a", "c"]);
    let errors: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(
        errors[0].starts_with("-:3: not a JSON object"),
        "{errors:?}"
    );
    assert!(errors[1].starts_with("-:4: longer than"), "{errors:?}");
    assert!(
        errors[2].starts_with("-:5: provider \"acme\" has no adapter"),
        "{errors:?}"
    );
}

#[test]
fn classify_takes_the_callers_word_for_adapter_and_format() {
    let line = br#"{"status":429,"headers":{"content-type":"application/json"},"body":"{\"object\":\"error\",\"message\":\"m\",\"type\":\"rate_limited\"}"}"#;
    let args = [
        "classify",
        "--json",
        "--adapter",
        "mistral",
        "--api",
        "openai_chat",
        "-",
    ];
    let output = rondo_with(&args, line);
    let found: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(found["rule"], "mistral.429.rate_limited");
    assert_eq!(found["id"], "line 1");
    let unknown = rondo(&["classify", "--adapter", "acme", CORPUS]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(
        text(&unknown.stderr).contains("openai_compatible"),
        "{unknown:?}"
    );
    let missing = rondo(&["classify", "/nowhere/at/all"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

/// A port that somebody else listens on ends the start with a word about it, not ten seconds later and half.
#[test]
fn a_taken_port_ends_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!(
        "server: {{ listen: [{{ address: \"{address}\" }}] }}\nadmin: {{ listen: \"off\" }}\nproviders: {{ a: {{ adapter: openai, mock: {{ answers: [ok] }} }} }}\nroutes: [{{ name: r, models: [m], targets: [{{ name: t, provider: a }}] }}]\n"
    );
    let file = crate::support::write_config(&config);
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_rondo"))
        .args(["run", "-c"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("cannot listen on {address} (server.listen)")),
        "{said}"
    );
    std::fs::remove_file(file).unwrap();
}
