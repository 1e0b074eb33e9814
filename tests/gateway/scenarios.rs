//! Plays every file of `tests/scenarios` on real sockets: a gateway of its own for each, scripted providers, a client that may leave.
//! The format is documented in `tests/scenarios/README.md`; `tests/pure/scenarios.rs` plays the same files in simulation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use rondo::ledger::Record;
use rondo::mock::body_hash;
use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use crate::support::Rondo;
use crate::support::client::{Connection, request, whole};

/// Scenarios that run at once. They mostly wait.
const AT_ONCE: usize = 8;
/// Room above a range of time, for a machine that runs other things.
const BUSY: u64 = 400;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    claim: String,
    #[serde(rename = "case")]
    _case: Option<String>,
    #[serde(rename = "requirements")]
    _requirements: Vec<String>,
    config: Config,
    upstreams: BTreeMap<String, Value>,
    #[serde(default)]
    earlier: u32,
    #[serde(default)]
    asleep: u16,
    #[serde(default)]
    request: Request,
    #[serde(default)]
    client: Client,
    #[serde(default)]
    gateway: Gateway,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    targets: Vec<String>,
    adapter: Option<String>,
    #[serde(default)]
    provider: Mapping,
    deadline_ms: Option<u64>,
    #[serde(default)]
    routing: Mapping,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    api: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body_fields: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    leaves_after_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gateway {
    shutdown_after_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: Option<u16>,
    sends: Vec<String>,
    rounds: Option<u8>,
    reason: Option<String>,
    suppression: Option<String>,
    outcome: Option<String>,
    waited_ms: Option<Range>,
    retry_after_ms: Option<Range>,
    answered_ms: Option<Range>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    #[serde(default)]
    min: u64,
    max: Option<u64>,
}

impl Range {
    fn holds(self, what: &str, found: Option<u64>) {
        let found = found.unwrap_or_else(|| panic!("there is no {what}"));
        let max = self.max.map_or(u64::MAX, |max| max + BUSY);
        assert!(
            (self.min..=max).contains(&found),
            "{what} is {found}, not within {self:?}"
        );
    }
}

/// What the client saw, and when.
struct Seen {
    /// `None`: it left first.
    answer: Option<Told>,
}

struct Told {
    status: u16,
    reason: Option<String>,
    retry_after_ms: Option<u64>,
    after: Duration,
}

impl Scenario {
    fn read(path: &Path) -> Scenario {
        let text = std::fs::read_to_string(path).unwrap();
        serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn yaml(&self) -> String {
        let adapter = self.config.adapter.as_deref().unwrap_or("openai");
        let mut providers = Mapping::new();
        let mut targets = Vec::new();
        for name in &self.config.targets {
            let mut provider: Mapping = serde_yaml::from_str(&format!(
                "{{adapter: {adapter}, keys: [{{name: main, secret: {{literal: {name}-secret}}}}]}}"
            ))
            .unwrap();
            match &self.upstreams[name] {
                Value::String(word) if word == "unreachable" => {
                    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                    let url = format!("http://{}", free.local_addr().unwrap());
                    provider.insert("base_url".into(), url.into());
                }
                Value::Sequence(answers) => {
                    let mut script = Mapping::new();
                    script.insert("answers".into(), Value::Sequence(answers.clone()));
                    script.insert("loop".into(), false.into());
                    provider.insert("mock".into(), Value::Mapping(script));
                }
                other => panic!("{name}: {other:?} is no upstream"),
            }
            provider.extend(self.config.provider.clone());
            providers.insert(format!("p-{name}").into(), Value::Mapping(provider));
            targets.push(format!(
                "{{name: {name}, provider: p-{name}, model: m-{name}}}"
            ));
        }
        let route = format!(
            "{{name: route, models: [m], targets: [{}]}}",
            targets.join(", ")
        );
        let mut route: Mapping = serde_yaml::from_str(&route).unwrap();
        if let Some(deadline) = self.config.deadline_ms {
            route.insert("deadline_ms".into(), deadline.into());
        }
        if !self.config.routing.is_empty() {
            route.insert(
                "routing".into(),
                Value::Mapping(self.config.routing.clone()),
            );
        }
        let mut file = Mapping::new();
        file.insert("providers".into(), Value::Mapping(providers));
        file.insert(
            "routes".into(),
            Value::Sequence(vec![Value::Mapping(route)]),
        );
        serde_yaml::to_string(&file).unwrap()
    }

    fn path(&self) -> &'static str {
        match self.request.api.as_deref().unwrap_or("openai_chat") {
            "openai_chat" => "/v1/chat/completions",
            "openai_completions" => "/v1/completions",
            "openai_responses" => "/v1/responses",
            "openai_embeddings" => "/v1/embeddings",
            "anthropic_messages" => "/v1/messages",
            "anthropic_count_tokens" => "/v1/messages/count_tokens",
            "gemini" if self.request.stream => "/v1beta/models/m:streamGenerateContent?alt=sse",
            "gemini" => "/v1beta/models/m:generateContent",
            other => panic!("{other} has no path here"),
        }
    }

    /// The minimal body for a model, with the scenario's own fields behind it.
    fn body(&self, model: &str) -> String {
        let words = match self.path() {
            "/v1/responses" | "/v1/embeddings" => r#""input":"Hi""#,
            "/v1/completions" => r#""prompt":"Hi""#,
            "/v1/chat/completions" => r#""messages":[{"role":"user","content":"Hi"}]"#,
            _ => r#""max_tokens":64,"messages":[{"role":"user","content":"Hi"}]"#,
        };
        let mut body = String::from(r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]"#);
        if !self.path().starts_with("/v1beta") {
            body = format!(
                r#"{{"model":"{model}","stream":{},{words}"#,
                self.request.stream
            );
        }
        for (name, value) in &self.request.body_fields {
            let value = match (name.as_str(), value.as_u64()) {
                ("padding_bytes", Some(length)) => "x".repeat(length as usize).into(),
                _ => value.clone(),
            };
            body += &format!(r#","{name}":{value}"#);
        }
        body + "}"
    }

    /// One operation, up to its end.
    async fn ask(&self, rondo: &Rondo, last: bool) -> Seen {
        let headers = self.request.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let request = request(self.path(), &headers, whole(self.body("m")));
        let mut connection = Connection::h1(rondo.addr).await;
        let began = Instant::now();
        let asked = async move {
            let response = connection.send(request).await.unwrap();
            let header = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
            let told = Told {
                status: response.status().as_u16(),
                reason: header("x-rondo-reason"),
                retry_after_ms: header("retry-after-ms").map(|text| text.parse().unwrap()),
                after: began.elapsed(),
            };
            http_body_util::BodyExt::collect(response.into_body())
                .await
                .unwrap();
            told
        };
        let never = Duration::from_secs(30);
        let after =
            |millis: Option<u64>| millis.filter(|_| last).map_or(never, Duration::from_millis);
        let drain = async {
            tokio::time::sleep(after(self.gateway.shutdown_after_ms)).await;
            rondo.app.gateway.around.lifecycle.begin_drain();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            told = asked => Some(told),
            () = tokio::time::sleep(after(self.client.leaves_after_ms)) => None,
            () = drain => None,
        };
        rondo.idle().await;
        Seen { answer }
    }
}

/// The series of a counter by one of its labels, those that are not zero.
fn by_label(rondo: &Rondo, name: &str, label: &str) -> BTreeMap<String, u64> {
    let text = rondo.app.telemetry.render();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")));
    let mut found = BTreeMap::new();
    for line in lines {
        let (_, rest) = line.split_once(&format!("{label}=\"")).unwrap();
        let count: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        if count > 0 {
            *found
                .entry(rest.split_once('"').unwrap().0.to_owned())
                .or_insert(0) += count;
        }
    }
    found
}

async fn play(path: PathBuf) {
    let scenario = Scenario::read(&path);
    let expect = &scenario.expect;
    let rondo = Rondo::start(&scenario.yaml()).await;
    for _ in 0..scenario.earlier {
        scenario.ask(&rondo, false).await;
    }
    let count = || {
        let outcomes = by_label(&rondo, "rondo_requests_total", "outcome");
        (
            outcomes,
            by_label(&rondo, "rondo_exhaustion_suppressions_total", "reason"),
        )
    };
    let route = Arc::clone(&rondo.app.snapshot().routes[0]);
    let sleepers: Vec<_> = (0..scenario.asleep)
        .map(|_| route.waiters.enter(1))
        .collect();
    assert!(sleepers.iter().all(Option::is_some), "no room for so many");
    let before = count();
    let seen = scenario.ask(&rondo, true).await;
    let after = count();
    drop(sleepers);
    rondo.assert_quiet().await;
    assert_fresh(&scenario, &rondo);

    let record: Arc<Record> = rondo.records().pop().unwrap();
    let operation = &record.operation;
    let sends: Vec<_> = record
        .attempts
        .iter()
        .map(|attempt| attempt.target.to_string())
        .collect();
    assert_eq!(
        operation.sends as usize,
        sends.len(),
        "attempts without a send: {record:?}"
    );
    assert_eq!(sends, expect.sends, "sends: {record:?}");
    let told = seen.answer.as_ref();
    let status = told.map_or(operation.http_status, |told| Some(told.status));
    if told.is_some() {
        assert_eq!(
            operation.http_status, status,
            "the record says what the client read"
        );
    }
    if expect.status.is_some() {
        assert_eq!(status, expect.status, "status: {record:?}");
    }
    if let Some(rounds) = expect.rounds {
        assert_eq!(operation.rounds, rounds, "rounds");
    }
    if let Some(reason) = &expect.reason {
        assert_eq!(operation.reason, reason, "reason");
        if let Some(said) = told.and_then(|told| told.reason.as_ref()) {
            assert_eq!(said, reason, "x-rondo-reason");
        }
    }
    if let Some(outcome) = &expect.outcome {
        assert_eq!(
            more(&before.0, &after.0),
            std::slice::from_ref(outcome),
            "outcome"
        );
    }
    let suppression: Vec<_> = expect.suppression.clone().into_iter().collect();
    assert_eq!(more(&before.1, &after.1), suppression, "suppression");
    if let Some(range) = expect.waited_ms {
        // The provider's instant counts from its answer: on a busy machine the rest of the round has used some of the delay by then.
        let min = range.min.saturating_sub(BUSY);
        Range { min, ..range }.holds("waited_ms", Some(operation.wait_ms));
    }
    if let Some(range) = expect.retry_after_ms {
        range.holds("retry_after_ms", told.and_then(|told| told.retry_after_ms));
    }
    if let Some(range) = expect.answered_ms {
        range.holds(
            "answered_ms",
            told.map(|told| told.after.as_millis() as u64),
        );
    }
}

/// The labels whose counters rose, each as often as it rose.
fn more(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let rose = |(label, count): (&String, &u64)| {
        let times = count - before.get(label).unwrap_or(&0);
        std::iter::repeat_n(label.clone(), times as usize)
    };
    after.iter().flat_map(rose).collect()
}

/// Whatever the claim: each request that arrived had the body and the credential of its own target, and nothing of another's or of the client's.
fn assert_fresh(scenario: &Scenario, rondo: &Rondo) {
    for target in &scenario.config.targets {
        let Some(recorder) = rondo.app.mock(&format!("p-{target}")) else {
            continue;
        };
        for seen in recorder.requests() {
            let values = seen.headers.values().map(|value| value.to_str().unwrap());
            let secrets: Vec<_> = values.filter(|value| value.contains("-secret")).collect();
            assert_eq!(secrets.len(), 1, "{target}: {:?}", seen.headers);
            assert!(
                secrets[0].ends_with(&format!("{target}-secret")),
                "{target}: {secrets:?}"
            );
            let foreign = seen
                .headers
                .values()
                .any(|value| value.to_str().unwrap().contains("CLIENT"));
            assert!(!foreign, "{target}: {:?}", seen.headers);
            if seen.body_complete {
                let body = scenario.body(&format!("m-{target}"));
                assert_eq!(
                    seen.body_hash,
                    body_hash(body.as_bytes()),
                    "the body at {target}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_holds_on_the_wire() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|ext| ext == "yaml"));
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(
        files.len() >= 40,
        "only {} scenarios were found",
        files.len()
    );
    let runs = files.into_iter().map(|path| async move {
        let claim = Scenario::read(&path).claim;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let played = tokio::spawn(play(path)).await;
        played.err().map(|_| format!("{name}: {claim}"))
    });
    let runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    let failed: Vec<String> = runs.filter_map(std::future::ready).collect().await;
    assert!(
        failed.is_empty(),
        "{} do not hold:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
