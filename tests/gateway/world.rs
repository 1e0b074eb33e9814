//! Operations of a real executor reported to a real telemetry, under a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use rondo::core::time::{MonoTime, WallTime};
use rondo::core::usage::Usage;
use rondo::executor::Executor;
use rondo::executor::effect::{Next, Note, OperationSettled};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::ledger::{Book, Record};
use rondo::policy::buffered::BufferedBytes;
use rondo::policy::ordering::Candidate;
use rondo::policy::snapshot::Snapshot;
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead};
use rondo::providers::classify::classify;
use rondo::providers::registry;
use rondo::proxy::host::{AttemptExtras, Observer, OperationEnd, OperationFacts, Stamp};
use rondo::telemetry::{ReloadResult, Setup, Telemetry};

use crate::compiled::compiled;

/// Two targets, a second round, 5xx moves on.
pub const YAML: &str = r#"
providers:
  acme:
    adapter: openai
    base_url: "http://localhost:1"
    keys: [{ name: main, secret: { literal: sk-very-secret } }]
routes:
  - name: gpt
    models: [gpt-x]
    targets:
      - { name: primary, provider: acme }
      - { name: backup, provider: acme, model: gpt-prod }
    routing:
      max_target_attempts: 2
      max_upstream_sends: 4
      exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }
      fallback_strategy: [http_429, http_5xx]
      sticky_key_attempts: 1
  - name: plain
    models: [plain-x]
    targets: [{ name: only, provider: acme }]
    routing: { sticky_key_attempts: 3, max_upstream_sends: 3, fallback_strategy: [http_5xx] }
"#;

/// What a target does.
#[derive(Clone, Copy)]
pub enum Does {
    Answer,
    Throttle,
    Break,
}

pub struct World {
    pub snapshot: Arc<Snapshot>,
    pub telemetry: Arc<Telemetry>,
    pub buffered: Arc<BufferedBytes>,
    pub micros: u64,
}

/// An operation under way.
pub struct Running<'a> {
    world: &'a mut World,
    facts: OperationFacts,
    executor: Executor,
    chance: SmallRng,
    settled: Option<OperationSettled>,
    pub next: Next,
}

impl World {
    pub fn new() -> World {
        World::with(Arc::default())
    }

    pub fn with(book: Arc<Book>) -> World {
        World::of(book, "boot")
    }

    /// The same, as this process.
    pub fn of(book: Arc<Book>, boot_id: &str) -> World {
        let (snapshot, buffered) = (compiled(YAML, None), Arc::new(BufferedBytes::default()));
        let telemetry = Telemetry::with(Setup {
            buffered: Arc::clone(&buffered),
            boot_id: Arc::from(boot_id),
            book,
            recording: None,
            occupancy: Arc::default(),
        });
        telemetry.adopt(&snapshot, ReloadResult::Initial);
        World {
            snapshot,
            telemetry,
            buffered,
            micros: 1_000_000,
        }
    }

    pub fn now(&self) -> Stamp {
        Stamp {
            mono: MonoTime::from_micros(self.micros),
            wall: WallTime::from_unix_micros(
                1_700_000_000_000_000 + i64::try_from(self.micros).unwrap(),
            ),
        }
    }

    pub fn start(&mut self, route_index: usize, id: &str) -> Running<'_> {
        let (started, snapshot) = (self.now(), Arc::clone(&self.snapshot));
        let route = Arc::clone(&snapshot.routes[route_index]);
        let facts = OperationFacts {
            id: Arc::from(id),
            snapshot,
            route: Arc::clone(&route),
            route_index,
            api: Api::OpenaiChat,
            public_model: Arc::from("SECRET-MODEL-TEXT"),
            client_key: None,
            stream: false,
            started,
            request_bytes: 100,
        };
        self.telemetry.request_opened();
        self.telemetry.operation_started(&facts);
        let executor = Executor::new(Plan {
            candidates: Candidate::each(&route),
            sticky_tries: route.routing.sticky_tries,
            pin: None,
            began: started.mono,
            deadline: started.mono.after(route.deadline),
            route,
            binding: None,
            caller_retry: false,
            caller_owns_retries: true,
            tokens: 10,
            held_bytes: 100,
        });
        let mut running = Running {
            world: self,
            facts,
            executor,
            chance: SmallRng::seed_from_u64(1),
            settled: None,
            next: Next::Continue,
        };
        running.feed(Event::Admitted);
        running
    }

    /// Runs a whole operation: each send in turn does what the script says, each wait elapses.
    pub fn run(&mut self, route_index: usize, id: &str, script: &[Does]) -> Arc<Record> {
        let mut running = self.start(route_index, id);
        for does in script {
            running.send(*does);
        }
        running.finish()
    }

    /// The value of a series, or `None` when it is not exported.
    pub fn value(&self, series: &str) -> Option<f64> {
        let text = self.telemetry.render();
        let line = text.lines().find_map(|line| {
            let rest = line.strip_prefix(series)?;
            rest.strip_prefix(' ')
        });
        line.map(|value| value.parse().unwrap())
    }

    /// The sum of a family over all its series.
    pub fn sum(&self, family: &str) -> f64 {
        let text = self.telemetry.render();
        let of_family = text.lines().filter(|line| {
            line.strip_prefix(family)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        of_family
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(_, value)| value.parse::<f64>().unwrap())
            .sum()
    }
}

impl Running<'_> {
    pub fn feed(&mut self, event: Event) {
        let at = self.world.now();
        let effects = self.executor.handle(at.mono, event, &mut self.chance);
        let extras = AttemptExtras {
            upstream_request_id: Some("req_up"),
            first_byte: Some(at),
        };
        for note in &effects.notes {
            self.world.telemetry.note(&self.facts, note, extras, at);
            if let Note::OperationSettled(settled) = note {
                self.settled = Some(*settled);
            }
        }
        self.next = effects.next;
    }

    pub fn render(&self) -> String {
        self.world.telemetry.render()
    }

    pub fn pass(&mut self, time: Duration) {
        self.world.micros += u64::try_from(time.as_micros()).unwrap();
    }

    pub fn cool(&self, time: Duration) {
        for target in &self.facts.route.targets {
            target.keys[0]
                .cooldown
                .extend(self.world.now().mono.after(time));
        }
    }

    pub fn send(&mut self, does: Does) {
        if matches!(self.next, Next::Wait(_)) {
            self.elapse();
        }
        self.feed(Event::SendBegun);
        assert!(matches!(self.next, Next::Send), "{:?}", self.next);
        self.pass(Duration::from_millis(10));
        self.feed(Event::Outcome(report(does)));
    }

    pub fn elapse(&mut self) {
        let Next::Wait(until) = self.next else {
            panic!("no wait: {:?}", self.next)
        };
        self.world.micros = until.as_micros();
        self.feed(Event::WaitElapsed);
    }

    pub fn finish(mut self) -> Arc<Record> {
        if self.settled.is_none() {
            self.feed(Event::Committed);
            self.feed(Event::StreamEnded(StreamEnd::Complete));
        }
        self.end(200)
    }

    pub fn end(self, status: u16) -> Arc<Record> {
        let ended = self.world.now();
        let settled = self.settled.expect("the operation was settled");
        let end = OperationEnd {
            status,
            outcome: settled.outcome,
            state: settled.state,
            reason: settled.reason,
            target: None,
            sends: settled.sends,
            rounds: settled.rounds,
            waited: settled.waited,
            first_byte: Some(ended),
            ended,
            overhead: Duration::from_micros(80),
            response_bytes: 10,
            usage: Some(Usage {
                prompt_tokens: Some(11),
                completion_tokens: Some(7),
                ..Usage::default()
            }),
        };
        self.world.telemetry.operation_ended(&self.facts, &end);
        self.world.telemetry.request_closed();
        let id = Arc::clone(&self.facts.id);
        let mut found = self
            .world
            .telemetry
            .recent(2, |record| record.operation.operation_id == id);
        assert_eq!(found.len(), 1);
        let record = found.remove(0);
        let line = rondo::telemetry::operation_line(&self.facts, &end, Some(&record));
        assert!(
            line.contains(" prompt_tokens=11 completion_tokens=7 "),
            "{line}"
        );
        assert_eq!(record.operation.usage_partial, Some(false));
        assert!(!line.contains("SECRET") && !line.contains("sk-"), "{line}");
        record
    }
}

pub fn report(does: Does) -> AttemptReport {
    let plain = |outcome, class, status| AttemptReport {
        outcome,
        class,
        scope: Scope::Candidate,
        carrier: Carrier::Status,
        status: Some(status),
        pushback: None,
        reply: None,
    };
    match does {
        Does::Answer => plain(Outcome::Succeeded, Class::Ok, 200),
        Does::Break => plain(Outcome::Refused, Class::ServerError, 500),
        Does::Throttle => throttle(),
    }
}

/// A certified rate limit, certified by the adapter.
fn throttle() -> AttemptReport {
    let headers = [("content-type", "application/json"), ("retry-after", "1")];
    let body = r#"{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: false,
        side_effects: false,
    };
    let head = ResponseHead {
        status: 429,
        headers: &headers,
    };
    let adapter = registry::find("openai").unwrap();
    let verdict = classify(
        adapter,
        &traits,
        &[],
        &head,
        body.as_bytes(),
        BodyEnd::Complete,
    );
    assert!(matches!(verdict.outcome, Outcome::Rejected(_)));
    AttemptReport {
        outcome: verdict.outcome,
        class: verdict.class,
        scope: verdict.scope,
        carrier: verdict.carrier,
        status: Some(verdict.status),
        pushback: verdict.pushback,
        reply: None,
    }
}
