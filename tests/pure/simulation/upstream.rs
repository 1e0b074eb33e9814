//! A simulated provider: it has windows in which it throttles everybody, and otherwise answers by weights that were drawn with it.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rondo::core::certificate::PushbackKind;
use rondo::core::outcome::{AttemptReport, Carrier};
use rondo::core::time::MonoTime;

use crate::support::ms;
use crate::support::reports::{named, rejected};

/// What an upstream may do beside throttling.
const TROUBLE: &[&str] = &[
    "nd",
    "429",
    "429/0",
    "529/700",
    "s429/400",
    "429/9000",
    "u429",
    "u529",
    "su529",
    "500",
    "502",
    "503",
    "s500",
    "400",
    "auth",
    "auth403",
    "context500",
    "config",
    "context",
    "quota",
    "503/900",
    "520",
    "reset",
    "timeout",
    "malformed",
    "partial",
];

/// One target of the simulation, shared by every route that names it.
#[derive(Debug)]
pub struct Upstream {
    rng: SmallRng,
    /// Share of good answers, in percent.
    good: u32,
    /// Share of calls that open a throttling window, in percent.
    throttling: u32,
    /// Typical latency.
    latency: u64,
    /// By key: a throttle is the key's.
    throttled_until: [MonoTime; 3],
}

impl Upstream {
    pub fn new(seed: u64) -> Upstream {
        let mut rng = SmallRng::seed_from_u64(seed);
        Upstream {
            good: rng.random_range(40..=97),
            throttling: rng.random_range(0..=6),
            latency: *[2, 40, 300, 2000].choose(&mut rng).unwrap(),
            throttled_until: [MonoTime::ZERO; 3],
            rng,
        }
    }

    /// What becomes of a send.
    pub fn answer(&mut self, now: MonoTime, key: usize) -> (Duration, AttemptReport) {
        let latency = ms(self.rng.random_range(0..=self.latency * 2));
        let until = self.throttled_until[key];
        if now < until {
            return (latency, self.throttle(until.since(now.after(latency))));
        }
        if self.rng.random_range(0..100) < self.throttling {
            let length = *[80, 500, 1500, 6000, 12_000].choose(&mut self.rng).unwrap();
            let until = now.after(ms(self.rng.random_range(1..=length)));
            self.throttled_until[key] = until;
            return (latency, self.throttle(until.since(now.after(latency))));
        }
        if self.rng.random_range(0..100) < self.good {
            return (latency, named("ok"));
        }
        let token = TROUBLE.choose(&mut self.rng).unwrap();
        let silence = ms(self.rng.random_range(5_000..=60_000));
        let after = if *token == "timeout" {
            silence
        } else {
            latency
        };
        (after, named(token))
    }

    fn throttle(&mut self, left: Duration) -> AttemptReport {
        match self.rng.random_range(0..20) {
            0 => named("u429"),
            1 => rejected(PushbackKind::Throttle, Carrier::Status, None),
            2 => rejected(PushbackKind::Overload, Carrier::Stream, Some(left)),
            3 => rejected(PushbackKind::Overload, Carrier::Status, Some(left)),
            _ => rejected(PushbackKind::Throttle, Carrier::Status, Some(left)),
        }
    }
}
