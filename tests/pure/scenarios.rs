//! Plays every file of `tests/scenarios` in simulation: the real configuration compiler, the real executor, virtual time. The format is
//! documented in `tests/scenarios/README.md`; the same files run on real sockets elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rondo::config::{Env, Environment, load};
use rondo::core::api::{Api, ApiSet};
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::event::Event;
use rondo::executor::plan::Plan;
use rondo::mock::Catalog;
use rondo::policy::ordering::{self, Facts};
use rondo::policy::route::Route;
use rondo::policy::snapshot::Snapshot;
use rondo::providers::planning;
use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use crate::simulation::auditor::Cooling;
use crate::support::check::{Run, START, Script, play_plan};
use crate::support::{ms, reports};

/// Latency of a scripted answer without its own.
const LATENCY: Duration = Duration::from_millis(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    claim: String,
    case: Option<String>,
    requirements: Vec<String>,
    config: Config,
    upstreams: BTreeMap<String, Upstream>,
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
    #[serde(default = "openai")]
    adapter: String,
    #[serde(default)]
    provider: Mapping,
    deadline_ms: Option<u64>,
    #[serde(default)]
    routing: Mapping,
}

fn openai() -> String {
    "openai".into()
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Upstream {
    Word(String),
    Answers(Vec<Answer>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Answer {
    Name(String),
    Preset(Preset),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preset {
    preset: String,
    retry_after: Option<f64>,
    delay_ms: Option<u64>,
    times: Option<usize>,
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
    body_fields: Mapping,
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
    #[serde(default = "far")]
    max: u64,
}

fn far() -> u64 {
    u64::MAX
}

impl Range {
    #[track_caller]
    fn holds(self, what: &str, found: Option<Duration>, file: &str) {
        let found = found.unwrap_or_else(|| panic!("{file}: there is no {what}"));
        let millis = u64::try_from(found.as_millis()).unwrap();
        let within = (self.min..=self.max).contains(&millis);
        assert!(within, "{file}: {what} is {millis}, not within {self:?}");
    }
}

/// What a preset comes to when the adapter has read it, in the tokens of [`reports`]. `None` is a name that no preset has.
fn token(preset: &str) -> Option<&'static str> {
    Some(match preset {
        "ok" | "tools" => "ok",
        "throttle" | "openai.throttle" | "anthropic.throttle" | "gemini.throttle" => "429/1000",
        "openai.throttle_uncertified" => "u429",
        "openai.quota" | "anthropic.spend_limit" | "gemini.quota" => "quota",
        "openai.overloaded" => "c503",
        "anthropic.overloaded" => "529",
        "gemini.unavailable" => "u503",
        "openai.server_error" | "anthropic.server_error" => "500",
        "openai.auth" | "anthropic.auth" => "auth",
        "openai.context" => "context",
        "openai.content_policy" => "policy",
        "openai.not_found" => "config",
        "openai.stream_error" | "anthropic.ping_then_error" => "s500",
        "responses.stream_failed" => "su503",
        "anthropic.stream_overloaded" => "su529",
        "nginx.503" => "bare503",
        "hang" => "timeout",
        "reset" => "reset",
        _ => return None,
    })
}

/// The configuration's files are in memory, and nothing else exists.
struct Memory(String);

impl Env for Memory {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }

    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.clone().into_bytes())
    }

    fn cores(&self) -> usize {
        1
    }
}

impl Scenario {
    fn read(path: &Path) -> Scenario {
        let text = std::fs::read_to_string(path).unwrap();
        serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The configuration of this scenario, as a user would write it.
    fn yaml(&self) -> String {
        let mut providers = Mapping::new();
        let mut targets = Vec::new();
        for target in &self.config.targets {
            let mut provider: Mapping = serde_yaml::from_str(&format!(
                "{{adapter: {}, base_url: 'http://127.0.0.1:9', keys: [{{name: main, secret: {{literal: {target}-secret}}}}]}}",
                self.config.adapter
            ))
            .unwrap();
            provider.extend(self.config.provider.clone());
            providers.insert(Value::from(format!("p-{target}")), Value::Mapping(provider));
            targets.push(format!(
                "{{name: {target}, provider: p-{target}, model: m-{target}}}"
            ));
        }
        let mut route: Mapping = serde_yaml::from_str(&format!(
            "{{name: route, models: [m], targets: [{}]}}",
            targets.join(", ")
        ))
        .unwrap();
        if let Some(deadline) = self.config.deadline_ms {
            route.insert("deadline_ms".into(), deadline.into());
        }
        if !self.config.routing.is_empty() {
            route.insert(
                "routing".into(),
                Value::Mapping(self.config.routing.clone()),
            );
        }
        let mut file: Mapping = serde_yaml::from_str(
            "{server: {listen: [{address: '127.0.0.1:0'}]}, ledger: {store: 'off'}}",
        )
        .unwrap();
        file.insert("providers".into(), Value::Mapping(providers));
        file.insert(
            "routes".into(),
            Value::Sequence(vec![Value::Mapping(route)]),
        );
        serde_yaml::to_string(&file).unwrap()
    }

    fn snapshot(&self, file: &str) -> Arc<Snapshot> {
        let yaml = self.yaml();
        let memory = Memory(yaml.clone());
        let environment = Environment {
            env: &memory,
            catalog: &Catalog,
            previous: None,
        };
        let loaded = load(Path::new("scenario.yaml"), &environment)
            .unwrap_or_else(|problems| panic!("{file}: {problems}\n{yaml}"));
        Arc::new(loaded.snapshot)
    }

    fn plan(&self, snapshot: &Snapshot, route: &Arc<Route>, began: MonoTime, file: &str) -> Plan {
        let name = self.request.api.as_deref().unwrap_or("openai_chat");
        let api = Api::from_label(name).unwrap_or_else(|| panic!("{file}: unknown api {name}"));
        let header = |name: &str| {
            self.request
                .headers
                .get(name)
                .and_then(|v| v.parse::<u64>().ok())
        };
        let seconds = header("x-stainless-timeout").map(|seconds| seconds * 1000);
        let shortened = header("x-request-timeout-ms").or(seconds).map(ms);
        let deadline = shortened.map_or(route.deadline, |own| own.min(route.deadline));
        let bound = ["previous_response_id", "conversation", "container"]
            .into_iter()
            .find(|field| self.request.body_fields.contains_key(*field));
        let facts = Facts {
            api,
            model: "m",
            stream: false,
            counts_tokens: planning::counts_tokens(api, None),
            is_bound: bound.is_some(),
            client: ordering::Client::Absent,
            header: &|_| None,
            conversions: ApiSet::EMPTY,
            now: began,
            wall: WallTime::default(),
        };
        let ordered = ordering::order(snapshot, route, &facts, &mut rand::rng());
        Plan {
            route: Arc::clone(route),
            candidates: ordered.candidates,
            sticky_tries: ordered.sticky_tries,
            pin: ordered.pin,
            binding: bound,
            caller_retry: header("x-stainless-retry-count").is_some_and(|count| count > 0),
            caller_owns_retries: planning::caller_owns_retries(snapshot, route),
            began,
            deadline: began.after(deadline),
            tokens: 10,
            held_bytes: 100,
        }
    }

    fn script(&self, snapshot: &Snapshot, file: &str) -> Script {
        let mut script = Script::default();
        for (index, target) in self.config.targets.iter().enumerate() {
            let silence = snapshot.providers[index].timeouts.first_byte;
            let answers = match self.upstreams.get(target) {
                Some(Upstream::Word(word)) if word == "unreachable" => {
                    vec![(LATENCY, reports::not_delivered())]
                }
                Some(Upstream::Word(word)) => panic!("{file}: {word} is no list of answers"),
                Some(Upstream::Answers(answers)) => answers
                    .iter()
                    .flat_map(|answer| answer.play(silence, file))
                    .collect(),
                None => panic!("{file}: {target} has no answers"),
            };
            script.answers.insert((index, None), answers);
        }
        script
    }
}

impl Answer {
    fn play(
        &self,
        silence: Duration,
        file: &str,
    ) -> Vec<(Duration, rondo::core::outcome::AttemptReport)> {
        let preset = match self {
            Answer::Name(name) => Preset {
                preset: name.clone(),
                retry_after: None,
                delay_ms: None,
                times: None,
            },
            Answer::Preset(preset) => preset.clone(),
        };
        let name = &preset.preset;
        let token = token(name).unwrap_or_else(|| panic!("{file}: unknown preset {name}"));
        let mut report = reports::named(token);
        if let Some(seconds) = preset.retry_after {
            report.pushback = Some(Duration::from_secs_f64(seconds));
        }
        let after = if token == "timeout" {
            silence
        } else {
            preset.delay_ms.map_or(LATENCY, ms)
        };
        vec![(after, report); preset.times.unwrap_or(1)]
    }
}

fn play(scenario: &Scenario, file: &str) -> (Run, Vec<String>) {
    let snapshot = scenario.snapshot(file);
    let route = &snapshot.routes[0];
    let mut script = scenario.script(&snapshot, file);
    let mut cooling = Cooling::default();
    let mut began = START;
    for _ in 0..scenario.earlier {
        let plan = scenario.plan(&snapshot, route, began, file);
        let run = play_plan(plan, began, &mut script, &mut cooling, 1);
        began = began
            .after(run.answered_at.unwrap_or_default())
            .after(ms(10));
    }
    if let Some(after) = scenario.client.leaves_after_ms {
        script.events.push((ms(after), Event::ClientGone));
    }
    if let Some(after) = scenario.gateway.shutdown_after_ms {
        script.events.push((ms(after), Event::ShutdownBegun));
    }
    let plan = scenario.plan(&snapshot, route, began, file);
    script.sleepers = scenario.asleep;
    let run = play_plan(plan, began, &mut script, &mut cooling, 1);
    let sends = run.trace.split(' ').filter_map(|word| {
        let (round, target) = word.split_once(':')?;
        let is_send = matches!(round, "1" | "2");
        let position = target
            .split('+')
            .next()?
            .strip_prefix('T')?
            .parse::<usize>()
            .ok()?;
        is_send.then(|| scenario.config.targets[position - 1].clone())
    });
    let sends = sends.collect();
    (run, sends)
}

fn compare(scenario: &Scenario, file: &str) {
    let (run, sends) = play(scenario, file);
    let expect = &scenario.expect;
    let trace = &run.trace;
    assert_eq!(sends, expect.sends, "{file}: sends; {trace}");
    if let Some(status) = expect.status {
        let found = if run.settled.outcome.label() == "cancelled" {
            Some(499)
        } else {
            run.status
        };
        assert_eq!(found, Some(status), "{file}: status; {trace}");
    }
    if let Some(rounds) = expect.rounds {
        assert_eq!(run.settled.rounds, rounds, "{file}: rounds; {trace}");
    }
    if let Some(outcome) = &expect.outcome {
        assert_eq!(
            run.settled.outcome.label(),
            outcome,
            "{file}: outcome; {trace}"
        );
    }
    if let Some(reason) = &expect.reason {
        assert_eq!(run.settled.reason, reason, "{file}: reason; {trace}");
    }
    let suppressed = trace.split(' ').find_map(|word| word.strip_prefix('-'));
    assert_eq!(
        suppressed,
        expect.suppression.as_deref(),
        "{file}: suppression; {trace}"
    );
    if let Some(range) = expect.waited_ms {
        range.holds("waited_ms", Some(run.settled.waited), file);
    }
    if let Some(range) = expect.retry_after_ms {
        range.holds(
            "retry_after_ms",
            run.throttle.map(|headers| headers.retry_after),
            file,
        );
    }
    if let Some(range) = expect.answered_ms {
        range.holds("answered_ms", run.answered_at, file);
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_holds_in_simulation() {
    let files = files();
    assert!(
        files.len() >= 40,
        "only {} scenarios were found",
        files.len()
    );
    let failed = files.iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        std::panic::catch_unwind(|| compare(&Scenario::read(path), &name)).is_err()
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.is_empty(), "{failed:?}");
}

// A file has one claim, names what it proves, and is named by what it claims.
#[test]
fn scenarios_are_well_formed() {
    for path in files() {
        let scenario = Scenario::read(&path);
        let name = path.display();
        assert!(
            scenario.claim.ends_with('.'),
            "{name}: the claim is a sentence"
        );
        assert!(!scenario.requirements.is_empty(), "{name}: proves nothing");
        let known = scenario.requirements.iter().all(|id| id.starts_with("R-"));
        assert!(known, "{name}: unknown requirement");
        let case = scenario.case.as_deref().unwrap_or("C0");
        assert!(case.starts_with('C'), "{name}: unknown case");
        let _ = scenario.request.stream;
    }
}
