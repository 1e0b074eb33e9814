//! `check(spec, script, expected)`: one operation on scripted upstreams, compared with what must follow.
//!
//! A script is a list of clauses, divided by `;`:
//!
//! | clause | meaning |
//! |---|---|
//! | `T1: 429/1000 ok` | the answers of a target in order, tokens of [`super::reports`]; the last one repeats |
//! | `T1k2: ok` | the answers of a target to its second key alone |
//! | `500@6000` in a list | the same, 6000 ms after the send instead of 10 ms |
//! | `gone@500` `drop@500` `shutdown@500` | what happens 500 ms after the operation began |
//! | `cool T2 30000` | a certified answer to somebody else has set T2 aside for so long |
//! | `cool T2 30000@500` | the same, at 500 ms |
//! | `cool T2k1 30000` | the same for one key of a pool; without a key it is the first |
//! | `aside T2k1 refused 60000` | a key is set aside: `refused` or `quota` |
//! | `fails T2 30000` | failures have set T2 aside for so long |
//! | `used T2 3` | so many requests of T2's minute are used, the operation's tokens each |
//! | `busy T2 1` | so many attempts at T2 are under way for the whole operation |
//! | `sleepers 256` | waiting slots that are taken by others |
//! | `prepare 20` | milliseconds between the pick of a candidate and the dispatch point |
//! | `streams broke` | how a good answer ends: `broke`, `timeout`, `gone` |
//!
//! What is expected is a list of words: `1:T1` a send in round 1, `1:T1+1` its first sticky try or own retry, `1:T1k2` the
//! same with the second key, `pause` the sleep before an own retry, `spent` the end of own retries, `skip:T2` passed over while cooling,
//! `no_budget` refused by the route's retry budget, `wait`, `-reason` a suppression, and the end: `ok`, a status, `throttled(reason)`, `local_limit(reason)`, `failing`, `unreachable`, `ambiguous`, `timed_out`,
//! `deadline`, `no_candidate`, `shutting_down`, `cancelled`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::outcome::AttemptReport;
use rondo::core::settlement::OperationOutcome;
use rondo::core::time::MonoTime;
use rondo::executor::effect::{
    Begin, Deliver, Effects, FinalAnswer, Next, Note, OperationSettled, SecondRoundEnd,
    ThrottleHeaders,
};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::policy::cooldown::{AsideReason, FailureRules};

use super::driver::{Driver, Surroundings};
use super::spec::Spec;
use super::{ms, reports};
use crate::simulation::auditor::Cooling;

/// The instant at which a played operation begins.
pub const START: MonoTime = MonoTime::from_micros(1_000_000);

/// What happened.
#[derive(Debug, Clone)]
pub struct Run {
    pub trace: String,
    /// Planned length of the wait.
    pub wait: Option<Duration>,
    /// Lengths of the pauses before own retries.
    pub pauses: Vec<Duration>,
    /// Whether the caller is told not to retry.
    pub forbids_retry: bool,
    /// When the answer began, counted from the operation's begin.
    pub answered_at: Option<Duration>,
    pub throttle: Option<ThrottleHeaders>,
    pub second_round_end: Option<SecondRoundEnd>,
    pub settled: OperationSettled,
    pub states: Vec<&'static str>,
    pub decisions: Vec<&'static str>,
    pub status: Option<u16>,
}

/// Plays a script and compares the trace.
#[track_caller]
pub fn check(spec: &Spec, script: &str, expected: &str) -> Run {
    let run = play(spec, script, 1);
    assert_eq!(run.trace, expected, "\nscript {script}\n{spec:?}");
    run
}

#[derive(Debug, Default)]
pub struct Script {
    pub answers: BTreeMap<Place, Vec<(Duration, AttemptReport)>>,
    pub events: Vec<(Duration, Event)>,
    pub cooling: Vec<(Place, Duration, Duration)>,
    pub asides: Vec<(Place, AsideReason, Duration)>,
    pub failing: Vec<(Place, Duration)>,
    pub used_up: Vec<(Place, u64)>,
    pub busy: Vec<(Place, u64)>,
    pub sleepers: u16,
    pub prepare: Duration,
    pub stream: Option<StreamEnd>,
    pub used: BTreeMap<Place, usize>,
}

/// A target and one of its keys, if one is named; both from 0.
pub type Place = (usize, Option<usize>);

impl Script {
    pub fn parse(text: &str) -> Script {
        let mut script = Script::default();
        for clause in text
            .split(';')
            .map(str::trim)
            .filter(|clause| !clause.is_empty())
        {
            script.clause(clause);
        }
        script
    }

    fn clause(&mut self, clause: &str) {
        let words: Vec<&str> = clause.split_whitespace().collect();
        if let Some(target) = words[0].strip_suffix(':') {
            let answers = words[1..].iter().map(|word| answer(word)).collect();
            self.answers.insert(index(target), answers);
            return;
        }
        match words[0].split_once('@') {
            Some(("gone", at)) => self.events.push((millis(at), Event::ClientGone)),
            Some(("drop", at)) => self.events.push((millis(at), Event::Dropped)),
            Some(("shutdown", at)) => self.events.push((millis(at), Event::ShutdownBegun)),
            Some(_) => panic!("unknown clause {clause}"),
            None => self.setting(&words),
        }
    }

    fn setting(&mut self, words: &[&str]) {
        match words[0] {
            "cool" => {
                let (length, at) = words[2].split_once('@').unwrap_or((words[2], "0"));
                self.cooling
                    .push((index(words[1]), millis(length), millis(at)));
            }
            "aside" => {
                let reason = match words[2] {
                    "refused" => AsideReason::Refused,
                    "quota" => AsideReason::Quota,
                    other => panic!("unknown reason {other}"),
                };
                self.asides
                    .push((index(words[1]), reason, millis(words[3])));
            }
            "fails" => self.failing.push((index(words[1]), millis(words[2]))),
            "used" => self
                .used_up
                .push((index(words[1]), words[2].parse().unwrap())),
            "busy" => self.busy.push((index(words[1]), words[2].parse().unwrap())),
            "sleepers" => self.sleepers = words[1].parse().unwrap(),
            "prepare" => self.prepare = millis(words[1]),
            "streams" => {
                self.stream = Some(match words[1] {
                    "broke" => StreamEnd::UpstreamBroke,
                    "timeout" => StreamEnd::UpstreamTimedOut,
                    "gone" => StreamEnd::ClientGone,
                    other => panic!("unknown end {other}"),
                });
            }
            other => panic!("unknown clause {other}"),
        }
    }
}

fn answer(word: &str) -> (Duration, AttemptReport) {
    let (token, after) = word.split_once('@').unwrap_or((word, "10"));
    (millis(after), reports::named(token))
}

fn index(place: &str) -> Place {
    let number = |text: &str| text.parse::<usize>().unwrap() - 1;
    let place = place.strip_prefix('T').unwrap();
    match place.split_once('k') {
        Some((target, key)) => (number(target), Some(number(key))),
        None => (number(place), None),
    }
}

fn millis(text: &str) -> Duration {
    ms(text.parse().unwrap())
}

impl Surroundings for Script {
    fn preparation(&mut self) -> Duration {
        self.prepare
    }

    fn send(&mut self, _now: MonoTime, begin: Begin) -> (Duration, AttemptReport) {
        let place = (begin.target, Some(begin.key));
        let place = match self.answers.contains_key(&place) {
            true => place,
            false => (begin.target, None),
        };
        let list = self.answers.get(&place);
        let list = list.unwrap_or_else(|| panic!("T{} has no answers", begin.target + 1));
        let used = self.used.entry(place).or_default();
        let found = list.get(*used).or(list.last()).unwrap().clone();
        *used += 1;
        found
    }

    fn stream(&mut self, _now: MonoTime, good: bool) -> (Duration, StreamEnd) {
        let end = self.stream.filter(|_| good).unwrap_or(StreamEnd::Complete);
        (ms(5), end)
    }
}

/// Plays a script with a seed for the jitter.
pub fn play(spec: &Spec, script: &str, seed: u64) -> Run {
    play_script(spec, Script::parse(script), seed)
}

pub fn play_script(spec: &Spec, mut script: Script, seed: u64) -> Run {
    let route = spec.build();
    let plan = spec.plan(&route, START);
    play_plan(plan, START, &mut script, &mut Cooling::default(), seed)
}

/// Plays one operation of a plan that begins at `start`. What the script has used up stays used.
pub fn play_plan(
    plan: Plan,
    start: MonoTime,
    script: &mut Script,
    cooling: &mut Cooling,
    seed: u64,
) -> Run {
    let route = Arc::clone(&plan.route);
    let mut sleepers = Vec::new();
    for _ in 0..script.sleepers {
        sleepers.push(route.waiters.enter(0).expect("no slot for a sleeper"));
    }
    let mut pending = std::mem::take(&mut script.cooling);
    for ((target, key), reason, length) in std::mem::take(&mut script.asides) {
        let aside = &route.targets[target].keys[key.unwrap_or(0)].aside;
        let until = start.after(length);
        aside.extend(reason, until);
        cooling.set_aside(Arc::as_ptr(aside) as usize, reason, until);
    }
    for ((target, key), length) in std::mem::take(&mut script.failing) {
        let cooldown = &route.targets[target].keys[key.unwrap_or(0)].cooldown;
        let rules = FailureRules {
            count: 1,
            within: length,
            cooldown: length,
        };
        cooldown.strike(cooldown.seen(start), &rules, start);
        cooling.fail(Arc::as_ptr(cooldown) as usize, start.after(length));
    }
    let mut busy = Vec::new();
    let used = std::mem::take(&mut script.used_up).into_iter();
    let used = used.map(|place| (place, true));
    let all = used.chain(script.busy.drain(..).map(|place| (place, false)));
    for (((target, _), count), ends) in all.collect::<Vec<_>>() {
        let account = route.targets[target].limits.as_ref().unwrap();
        for _ in 0..count {
            let mut share = account.reserve(plan.tokens, start).unwrap();
            share.keep();
            let id = cooling.reserve(Arc::as_ptr(account) as usize, plan.tokens, start);
            match ends {
                true => cooling.free(Arc::as_ptr(account) as usize, id, true),
                false => busy.push((share, Arc::as_ptr(account) as usize, id)),
            }
        }
    }
    let mut events = std::mem::take(&mut script.events);
    events.push((plan.deadline.since(start), Event::DeadlinePassed));
    events.sort_by_key(|(at, _)| *at);
    let mut events = events.into_iter().peekable();
    let mut driver = Driver::new(plan, start, seed);
    let mut story = Story::new(start);
    while !driver.has_ended() {
        let outside = events.peek().map(|(at, _)| start.after(*at));
        let own = driver.due.as_ref().map(|(at, _)| *at);
        let (now, event) = match (outside, own) {
            (Some(at), own) if own.is_none_or(|own| at <= own) => (at, events.next().unwrap().1),
            _ => driver
                .due
                .take()
                .expect("R-B4: nothing would ever end this operation"),
        };
        pending.retain(|((target, key), length, at)| {
            let due = start.after(*at) <= now;
            if due {
                let until = start.after(*at).after(*length);
                let cooldown = &route.targets[*target].keys[key.unwrap_or(0)].cooldown;
                cooldown.extend(until);
                cooling.extend(Arc::as_ptr(cooldown) as usize, until);
            }
            !due
        });
        let effects = driver.feed(now, event, cooling, script);
        story.tell(now, &effects, driver.auditor.open().is_some());
    }
    assert_eq!(
        driver.auditor.attempts, driver.auditor.settled_attempts,
        "R-S23"
    );
    assert_eq!(
        route.waiters.waiting(),
        u64::from(script.sleepers),
        "R-S22: a slot leaked"
    );
    for (share, account, id) in busy {
        drop(share);
        cooling.free(account, id, true);
    }
    let throttle = driver.auditor.throttle;
    let second_round_end = driver.auditor.second_round_end;
    let settled = driver.auditor.settled.expect("R-S23: no settlement");
    if settled.outcome == OperationOutcome::Cancelled {
        story.words.push("cancelled".into());
    }
    Run {
        trace: story.words.join(" "),
        wait: story.wait,
        pauses: story.pauses,
        forbids_retry: driver.executor.forbids_retry(),
        answered_at: story.answered_at,
        throttle,
        second_round_end,
        settled,
        states: story.states,
        decisions: story.decisions,
        status: story.status,
    }
}

#[derive(Debug)]
struct Story {
    start: MonoTime,
    words: Vec<String>,
    wait: Option<Duration>,
    pauses: Vec<Duration>,
    answered_at: Option<Duration>,
    states: Vec<&'static str>,
    decisions: Vec<&'static str>,
    status: Option<u16>,
    last_status: Option<u16>,
}

impl Story {
    fn new(start: MonoTime) -> Story {
        Story {
            start,
            words: Vec::new(),
            wait: None,
            pauses: Vec::new(),
            answered_at: None,
            states: Vec::new(),
            decisions: Vec::new(),
            status: None,
            last_status: None,
        }
    }

    fn tell(&mut self, now: MonoTime, effects: &Effects, has_open: bool) {
        for note in &effects.notes {
            self.note(note);
        }
        match &effects.next {
            Next::Wait(until) => {
                let mut notes = effects.notes.iter();
                if !notes.any(|n| matches!(n, Note::RetryScheduled { .. })) {
                    self.wait = Some(until.since(now));
                }
            }
            Next::Deliver(Deliver::AsIs) if has_open => self.end(now, "ok".into(), Some(200)),
            Next::Deliver(Deliver::AsIs) => {
                let status = self.last_status.unwrap();
                self.end(now, status.to_string(), Some(status));
            }
            Next::Deliver(Deliver::Throttled(headers)) => {
                self.end(
                    now,
                    format!("throttled({})", headers.reason),
                    self.last_status,
                );
            }
            Next::Answer(answer) => self.answer(now, answer),
            Next::Begin(_) | Next::Send | Next::Continue | Next::End => {}
        }
    }

    fn note(&mut self, note: &Note) {
        match note {
            Note::SendDispatched(begin) => {
                let again = match begin.retry_index {
                    0 => String::new(),
                    more => format!("+{more}"),
                };
                let key = match begin.key {
                    0 => String::new(),
                    key => format!("k{}", key + 1),
                };
                let (round, target) = (begin.round.number(), begin.target + 1);
                self.words.push(format!("{round}:T{target}{key}{again}"));
            }
            Note::Skipped { target, .. } => self.words.push(format!("skip:T{}", target + 1)),
            Note::WaitBegun => self.words.push("wait".into()),
            Note::Suppressed(reason) => self.words.push(format!("-{}", reason.label())),
            Note::AttemptSettled(settled) => {
                self.states.push(settled.state.label());
                self.decisions.push(settled.decision.label());
                self.last_status = settled.report.as_ref().and_then(|report| report.status);
            }
            Note::RetryScheduled { pause, .. } => {
                self.words.push("pause".into());
                self.pauses.push(*pause);
            }
            Note::RetriesExhausted(_) => self.words.push("spent".into()),
            Note::RetryBudgetExhausted => self.words.push("no_budget".into()),
            Note::AttemptOpened(_)
            | Note::Failover { .. }
            | Note::WaitEnded { .. }
            | Note::SecondRoundEnded(_)
            | Note::RouteExhausted
            | Note::OperationSettled(_)
            | Note::Unexpected(_) => {}
        }
    }

    fn answer(&mut self, now: MonoTime, answer: &FinalAnswer) {
        let (word, status) = match answer {
            FinalAnswer::Upstream(reply) => (reply.status.to_string(), reply.status),
            FinalAnswer::Throttled(reply, headers) => {
                let status = reply.as_ref().map_or(429, |reply| reply.status);
                (format!("throttled({})", headers.reason), status)
            }
            FinalAnswer::LocalLimit(headers) => (format!("local_limit({})", headers.reason), 429),
            FinalAnswer::Failing(_) => ("failing".into(), 503),
            FinalAnswer::Unreachable => ("unreachable".into(), 502),
            FinalAnswer::Ambiguous => ("ambiguous".into(), 502),
            FinalAnswer::TimedOut => ("timed_out".into(), 504),
            FinalAnswer::Deadline => ("deadline".into(), 504),
            FinalAnswer::CredentialsExhausted => ("credentials_exhausted".into(), 502),
            FinalAnswer::NoCandidate => ("no_candidate".into(), 503),
            FinalAnswer::ShuttingDown => ("shutting_down".into(), 503),
            FinalAnswer::Internal => ("internal".into(), 500),
        };
        self.end(now, word, Some(status));
    }

    fn end(&mut self, now: MonoTime, word: String, status: Option<u16>) {
        self.words.push(word);
        self.status = status;
        self.answered_at = Some(now.since(self.start));
    }
}
