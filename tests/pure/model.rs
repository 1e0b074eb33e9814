//! Small worlds, exhaustively: every outcome of every attempt, and every outside event at every step boundary, under many
//! configurations. The auditor watches each step. A world is a list of choices; the walk goes through all lists in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::outcome::AttemptReport;
use rondo::core::time::MonoTime;
use rondo::executor::effect::Begin;
use rondo::executor::event::{Event, StreamEnd};
use rondo::policy::routing::{Fallback, Mode};

use crate::simulation::auditor::Cooling;
use crate::support::check::START;
use crate::support::driver::{Driver, Surroundings};
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

/// Everything that an attempt can come to.
const ALL_OUTCOMES: &[&str] = &[
    "ok",
    "nd",
    "429",
    "429/0",
    "529/300",
    "429/5000",
    "s429/300",
    "u429",
    "500",
    "s500",
    "400",
    "auth",
    "quota",
    "reset",
    "timeout",
    "malformed",
    "partial",
];
/// One outcome of each kind that leads somewhere else.
const FEW_OUTCOMES: &[&str] = &["ok", "nd", "429/300", "500", "reset"];

/// What matters to pools and to own retries.
const KEY_OUTCOMES: &[&str] = &[
    "ok", "429/300", "503/200", "auth", "529", "quota", "nd", "u429", "503/9000", "400", "reset",
];
/// The same for walks with outside events.
const FEW_KEY_OUTCOMES: &[&str] = &["ok", "429/300", "503", "auth"];

/// What happens outside, at a step boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Nothing,
    Gone,
    Dropped,
    Shutdown,
    /// The deadline's timer fires.
    Deadline,
    /// The deadline passes, but the operation's own event comes before the timer's.
    LateTimer,
}

const OUTSIDE: &[Outside] = &[
    Outside::Nothing,
    Outside::Gone,
    Outside::Dropped,
    Outside::Shutdown,
    Outside::Deadline,
    Outside::LateTimer,
];

/// The list of choices that makes a world.
#[derive(Debug, Default)]
struct Choices {
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn pick(&mut self, count: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, count));
        }
        let (choice, of) = self.made[self.at];
        assert_eq!(of, count, "a world is not repeatable");
        self.at += 1;
        choice
    }

    /// Moves on to the next world; false when all were walked.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, count)) = self.made.pop() {
            if choice + 1 < count {
                self.made.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

/// The reports are built once; building one is not what is tested.
struct Palette {
    reports: Vec<AttemptReport>,
}

impl Palette {
    fn new(tokens: &[&str]) -> Palette {
        Palette {
            reports: tokens.iter().map(|token| named(token)).collect(),
        }
    }
}

struct Fate<'a> {
    choices: &'a mut Choices,
    palette: &'a Palette,
    /// Whether ends of deliveries are walked, too.
    ends: bool,
}

impl Surroundings for Fate<'_> {
    fn preparation(&mut self) -> Duration {
        ms(1)
    }

    fn send(&mut self, _now: MonoTime, begin: Begin) -> (Duration, AttemptReport) {
        let choice = self.choices.pick(self.palette.reports.len());
        // The second target is slow, for `retry_on_failure_within_ms`.
        let latency = if begin.target == 1 { ms(40) } else { ms(10) };
        (latency, self.palette.reports[choice].clone())
    }

    fn stream(&mut self, _now: MonoTime, good: bool) -> (Duration, StreamEnd) {
        let ends = [
            StreamEnd::Complete,
            StreamEnd::UpstreamBroke,
            StreamEnd::UpstreamTimedOut,
        ];
        let choice = if good && self.ends {
            self.choices.pick(ends.len())
        } else {
            0
        };
        (ms(5), ends[choice])
    }
}

/// Walks every world of a configuration and counts them.
fn walk(spec: &Spec, palette: &Palette, outside_max: u32) -> u64 {
    let mut choices = Choices::default();
    let mut worlds = 0;
    loop {
        live(spec, palette, &mut choices, outside_max);
        worlds += 1;
        if !choices.next() {
            return worlds;
        }
    }
}

fn live(spec: &Spec, palette: &Palette, choices: &mut Choices, outside_max: u32) {
    let route = spec.build();
    let mut cooling = Cooling::default();
    let mut driver = Driver::new(spec.plan(&route, START), START, 7);
    cooling.exhaust(spec, &route, START);
    let mut outside_left = outside_max;
    let mut steps = 0;
    let mut is_late = false;
    while !driver.has_ended() {
        steps += 1;
        assert!(steps < 200, "an operation that never ends");
        let (due, own) = driver
            .due
            .clone()
            .expect("nothing would end this operation");
        let mut now = if is_late {
            due.max(driver.deadline)
        } else {
            due
        };
        let outside = if outside_left == 0 {
            0
        } else {
            choices.pick(OUTSIDE.len())
        };
        let outside = OUTSIDE[outside];
        if outside != Outside::Nothing {
            outside_left -= 1;
        }
        let event = match outside {
            Outside::Nothing => own,
            Outside::Gone => Event::ClientGone,
            Outside::Dropped => Event::Dropped,
            Outside::Shutdown => Event::ShutdownBegun,
            Outside::Deadline => {
                now = now.max(driver.deadline);
                is_late = true;
                Event::DeadlinePassed
            }
            Outside::LateTimer => {
                now = now.max(driver.deadline);
                is_late = true;
                own
            }
        };
        let ends = outside_max == 0;
        let mut fate = Fate {
            choices,
            palette,
            ends,
        };
        let _ = driver.feed(now, event, &mut cooling, &mut fate);
        let slots = u64::from(driver.auditor.is_waiting());
        assert_eq!(
            route.waiters.waiting(),
            slots,
            "R-B6: slots and sleepers differ"
        );
    }
    assert_eq!(
        driver.auditor.attempts, driver.auditor.settled_attempts,
        "R-S23"
    );
    assert!(
        driver.auditor.settled.is_some(),
        "R-S23: an operation without a settlement"
    );
    assert_eq!(driver.executor.sends(), driver.auditor.sends, "R-B1");
    assert_eq!(
        Arc::strong_count(&route.waiters),
        1,
        "a permit outlived its operation"
    );
}

fn strategies() -> Vec<Fallback> {
    let none = Fallback::default();
    let usual = Fallback {
        http_429: true,
        ..none.clone()
    };
    let all = Fallback {
        http_429: true,
        http_5xx: true,
        transport_error: true,
        statuses: vec![400, 401],
        ..none.clone()
    };
    vec![none, usual, all]
}

/// A base and its neighbours: each differs in one thing that a requirement names.
fn neighbours(base: &Spec) -> Vec<Spec> {
    let base = base.clone();
    let attempts = base.attempts_max;
    vec![
        Spec {
            sticky_tries: 2,
            ..base.clone()
        },
        Spec {
            sticky_tries: 3,
            sends_max: 3,
            ..base.clone()
        },
        Spec {
            sends_max: 1,
            ..base.clone()
        },
        Spec {
            sends_max: attempts + 1,
            ..base.clone()
        },
        Spec {
            tries_max: Some(1),
            ..base.clone()
        },
        Spec {
            tries_max: Some(2),
            ..base.clone()
        },
        Spec {
            attempts_max: attempts.saturating_sub(1).max(1),
            ..base.clone()
        },
        Spec {
            fail_within: Some(20),
            ..base.clone()
        },
        Spec {
            mode: Mode::PrimaryOnly,
            ..base.clone()
        },
        Spec {
            bound: true,
            sticky_tries: 2,
            ..base.clone()
        },
        Spec {
            caller_retry: true,
            ..base.clone()
        },
        Spec {
            cooldown_max: 0,
            ..base.clone()
        },
        Spec {
            cooldown_max: 100,
            ..base.clone()
        },
        Spec {
            slots_max: 0,
            ..base.clone()
        },
        Spec {
            deadline: 400,
            ..base.clone()
        },
        Spec {
            wait_max: 200,
            ..base.clone()
        },
        Spec {
            failover_within: Some(30),
            ..base.clone()
        },
        Spec {
            failover_within: Some(400),
            ..base.clone()
        },
        Spec {
            budget: (0, 0),
            sticky_tries: 2,
            ..base.clone()
        },
        base,
    ]
}

fn count(name: &str, configurations: &[Spec], tokens: &[&str], outside_max: u32, at_least: u64) {
    let palette = Palette::new(tokens);
    let mut by_targets = BTreeMap::new();
    for spec in configurations {
        *by_targets.entry(spec.targets).or_insert(0) += walk(spec, &palette, outside_max);
    }
    let worlds: u64 = by_targets.values().sum();
    println!(
        "{name}: {worlds} worlds in {} configurations, by targets {by_targets:?}",
        configurations.len()
    );
    assert!(worlds >= at_least, "only {worlds} worlds were walked");
}

// R-B1 R-B2 R-B3 R-F1 R-F2 R-F3 R-F4 R-F7 R-F8 R-K1 R-K2 R-K4 R-D1 R-S5 R-S11 R-S19 R-S20 R-S22 R-S23
#[test]
fn every_outcome_on_one_and_two_targets() {
    let mut configurations = Vec::new();
    for targets in 1..=2 {
        for fallback in strategies() {
            for base in [route(targets), two_rounds(targets)] {
                configurations.extend(neighbours(&Spec {
                    fallback: fallback.clone(),
                    ..base
                }));
            }
        }
    }
    count("outcomes", &configurations, ALL_OUTCOMES, 0, 30_000);
}

// The same, on three targets.
#[test]
fn every_outcome_on_three_targets() {
    let mut configurations = Vec::new();
    for fallback in strategies() {
        configurations.extend(neighbours(&Spec {
            fallback,
            ..two_rounds(3)
        }));
    }
    count("three targets", &configurations, ALL_OUTCOMES, 0, 150_000);
}

// R-B4 R-B8 R-S9 R-S15 R-L1 R-L5: one outside event at every step boundary.
#[test]
fn every_outside_event_at_every_step() {
    let mut configurations = Vec::new();
    for targets in 1..=2 {
        for fallback in strategies() {
            for base in [route(targets), two_rounds(targets)] {
                configurations.extend(neighbours(&Spec {
                    fallback: fallback.clone(),
                    ..base
                }));
            }
        }
    }
    for fallback in strategies() {
        configurations.extend(neighbours(&Spec {
            fallback,
            ..two_rounds(3)
        }));
    }
    count("one event", &configurations, FEW_OUTCOMES, 1, 60_000);
}

// R-F2 R-S5 R-S13 R-S16: local limits, with and without the strategy that skips.
#[test]
fn every_outcome_beside_an_exhausted_target() {
    let mut configurations = Vec::new();
    for mut fallback in strategies() {
        for (targets, exhausted) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
            for skips in [false, true] {
                for limits in [
                    (Some(1), None, None),
                    (None, None, Some(1)),
                    (Some(2), None, Some(1)),
                ] {
                    for base in [route(targets), two_rounds(targets)] {
                        let (requests, tokens, at_once) = limits;
                        let limited = base.limits(requests, tokens, at_once);
                        fallback.rate_limiting = skips;
                        let base = Spec {
                            limited: exhausted,
                            exhausted: if requests.is_some() { exhausted } else { 0 },
                            fallback: fallback.clone(),
                            sticky_tries: 2,
                            ..limited
                        };
                        let long = Spec {
                            wait_max: 61_000,
                            ..base.clone()
                        };
                        configurations.extend([base, long]);
                    }
                }
            }
        }
    }
    count("limits", &configurations, ALL_OUTCOMES, 0, 10_000);
    count(
        "limits, one event",
        &configurations,
        FEW_OUTCOMES,
        1,
        60_000,
    );
}

// Two events, for instance a drain and then a client that leaves.
#[test]
fn every_pair_of_outside_events() {
    let all = strategies().remove(2);
    let mut configurations = neighbours(&Spec {
        fallback: all.clone(),
        ..two_rounds(1)
    });
    configurations.extend(neighbours(&Spec {
        fallback: all,
        ..two_rounds(2)
    }));
    count("two events", &configurations, FEW_OUTCOMES, 2, 60_000);
}

/// Pools of one to three keys, at providers whose retries are the caller's, the gateway's, or the one after the other.
fn pools(targets: usize, fallback: &Fallback) -> Vec<Spec> {
    let mut configurations = Vec::new();
    for base in [route(targets), two_rounds(targets)] {
        for keys in 0..=3 {
            for internal in [0b00, 0b01, 0b11] {
                let base = Spec {
                    fallback: fallback.clone(),
                    sends_max: 4,
                    deadline: 6_000,
                    ..base.clone()
                };
                let pooled = Spec {
                    internal,
                    ..base.keys(keys).internal(3, 3_000, 100, 150)
                };
                configurations.extend([
                    Spec {
                        sticky_tries: 2,
                        ..pooled.clone()
                    },
                    Spec {
                        bound: true,
                        ..pooled.clone()
                    },
                    Spec {
                        slots_max: 0,
                        ..pooled.clone()
                    },
                    Spec {
                        fail_within: Some(20),
                        ..pooled.clone()
                    },
                    pooled,
                ]);
            }
        }
    }
    configurations
}

// R-P1 to R-P7, R-F8, R-B1 R-B2: every outcome on pools and internal providers.
#[test]
fn every_outcome_with_pools_and_own_retries() {
    let mut configurations = Vec::new();
    for fallback in strategies() {
        configurations.extend(pools(1, &fallback));
    }
    count("pools", &configurations, KEY_OUTCOMES, 0, 100_000);
    let configurations = pools(2, &strategies().remove(2));
    let tokens = &KEY_OUTCOMES[..7];
    count("pools of two", &configurations, tokens, 0, 50_000);
}

// R-P6: a pause is ended by whatever ends the operation.
#[test]
fn every_outside_event_with_pools_and_own_retries() {
    let all = strategies().remove(2);
    let mut configurations = pools(1, &all);
    configurations.extend(pools(2, &all));
    count(
        "pools, one event",
        &configurations,
        FEW_KEY_OUTCOMES,
        1,
        60_000,
    );
}

/// What reaches further than one candidate.
const SCOPED_OUTCOMES: &[&str] = &[
    "ok",
    "unreached",
    "region",
    "auth",
    "429/300",
    "529/200",
    "u529",
    "500",
    "nd",
];

/// Two targets of one provider, by target and by key: a target then stands in two places.
fn scoped(fallback: &Fallback) -> Vec<Spec> {
    let by_key = vec![(0, vec![0]), (1, vec![0]), (0, vec![1]), (1, vec![1])];
    let by_priority = vec![(1, vec![1, 0]), (0, vec![1, 0])];
    let mut configurations = Vec::new();
    for (places, attempts_max) in [(None, 2), (Some(by_priority), 2), (Some(by_key), 4)] {
        for base in [route(2), two_rounds(2)] {
            for one_provider in [true, false] {
                configurations.push(Spec {
                    places: places.clone(),
                    one_provider,
                    attempts_max,
                    sends_max: 5,
                    sticky_tries: 2,
                    fallback: Fallback {
                        statuses: vec![401, 403],
                        ..fallback.clone()
                    },
                    ..base.clone().keys(2)
                });
            }
        }
    }
    configurations
}

// R-K2 R-B2: every outcome where failures reach other candidates, and where a target stands in several places.
#[test]
fn every_outcome_with_shared_providers_and_places() {
    let mut configurations = Vec::new();
    for fallback in strategies() {
        configurations.extend(scoped(&fallback));
    }
    count("scopes", &configurations, SCOPED_OUTCOMES, 0, 50_000);
}
