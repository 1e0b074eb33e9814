//! `routing` of one route: defaults that depend on the targets, budgets, the second round (R-S1..R-S3, R-F3..R-F6, R-K1).

use std::time::Duration;

use super::Compiler;
use crate::config::problem::Spot;
use crate::config::reader::Map;
use crate::core::limits::{ROUNDS_MAX, SENDS_MAX};
use crate::policy::provider::Provider;
use crate::policy::routing::{Exhaustion, FailureRules, Fallback, Mode, OnDisconnect, Routing};

impl Compiler<'_> {
    pub(super) fn routing(
        &mut self,
        route: &Map<'_>,
        map: &Map<'_>,
        target_count: usize,
        used: &[Option<&Provider>],
    ) -> Routing {
        let mode = match map.text("mode") {
            Some("primary_only") => Mode::PrimaryOnly,
            Some(_) => Mode::PriorityFailover,
            // A mode that was refused is no ground for further errors.
            None if target_count > 1 || map.has("mode") => Mode::PriorityFailover,
            None => Mode::PrimaryOnly,
        };
        self.needs_failover(map, mode);
        let sticky_tries = total(map.number("sticky_key_attempts")).max(1);
        let attempts_max = self.attempts_max(map, mode, target_count);
        let sends_default = (attempts_max + sticky_tries - 1).min(SENDS_MAX);
        let sends_max = map
            .given_number("max_upstream_sends")
            .map_or(sends_default, total);
        self.warn_about_retries(map, route, used, attempts_max, sends_max);
        let cooldown = map.map("cooldown");
        Routing {
            mode,
            attempts_max,
            sends_max,
            exhaustion: self.exhaustion(map, route, mode),
            fallback: self.fallback(map),
            tries_max: map
                .given_number("max_retries")
                .map(|extra| total(extra) + 1),
            fail_within: map
                .given_number("retry_on_failure_within_ms")
                .map(Duration::from_millis),
            failover_within: map
                .given_number("max_failover_elapsed_ms")
                .map(Duration::from_millis),
            sticky_tries,
            on_client_disconnect: match map.text("on_client_disconnect") {
                Some("drain") => OnDisconnect::Drain,
                _ => OnDisconnect::Abort,
            },
            cooldown_max: cooldown.millis("max_ms"),
            quota_aside: cooldown.millis("quota_ms"),
            failures: cooldown.given_map("failures").map(|rules| FailureRules {
                count: rules.number("count"),
                within: rules.millis("within_ms"),
                cooldown: rules.millis("cooldown_ms"),
            }),
        }
    }

    fn attempts_max(&mut self, map: &Map<'_>, mode: Mode, target_count: usize) -> u32 {
        let count = u32::try_from(target_count).unwrap_or(u32::MAX).max(1);
        let given = map.given_number("max_target_attempts").map(total);
        match mode {
            Mode::PriorityFailover => given.unwrap_or(count),
            Mode::PrimaryOnly => {
                if given.is_some_and(|given| given > 1) && map.is_own("max_target_attempts") {
                    let message =
                        "no effect beyond 1: mode primary_only tries the first target alone";
                    self.report.warn(&map.at("max_target_attempts"), message);
                }
                1
            }
        }
    }

    /// R-F5: limits on moving on make no sense where nothing moves on.
    fn needs_failover(&mut self, map: &Map<'_>, mode: Mode) {
        if mode == Mode::PriorityFailover {
            return;
        }
        for key in [
            "max_retries",
            "retry_on_failure_within_ms",
            "max_failover_elapsed_ms",
        ] {
            // A profile is written for many routes, and says nothing to one that does not fail over.
            if map.is_own(key) {
                let message = format!(
                    "needs failover, and the mode of this route is {}{}; remove this, or set `mode: priority_failover`",
                    mode.label(),
                    if map.has("mode") {
                        ""
                    } else {
                        " (the default with one target)"
                    }
                );
                self.report.refuse(&map.at(key), message);
            }
        }
    }

    fn exhaustion(&mut self, map: &Map<'_>, route: &Map<'_>, mode: Mode) -> Option<Exhaustion> {
        if mode == Mode::PrimaryOnly && !map.is_own("exhaustion_retry") {
            return None;
        }
        let retry = map.given_map("exhaustion_retry")?;
        let rounds = retry.number("max_rounds");
        let wait_max = retry.given_number("max_wait_ms").map(Duration::from_millis);
        let deadline = route.millis("deadline_ms");
        if let Some(wait) = wait_max
            && route.sound_number("deadline_ms").is_some()
            && wait >= deadline
        {
            let message = format!(
                "not below deadline_ms ({}), so no wait of that length could ever end in time",
                deadline.as_millis()
            );
            self.report.refuse(&retry.at("max_wait_ms"), message);
        }
        if rounds > 0 {
            if !retry.has("max_wait_ms") {
                let spot = Spot {
                    at: retry.spot().at,
                    path: retry.at("max_wait_ms").path,
                };
                let message =
                    "missing; max_rounds 1 needs the longest wait, a whole number from 1 to 60000";
                self.report.refuse(&spot, message);
            }
            self.exhaustion_needs(map, retry.spot(), mode);
        }
        Some(Exhaustion {
            rounds_max: u8::try_from(rounds + 1)
                .unwrap_or(ROUNDS_MAX)
                .min(ROUNDS_MAX),
            wait_max: wait_max.unwrap_or_default(),
        })
    }

    /// R-S3: a second round is only allowed where its cost was written down.
    fn exhaustion_needs(&mut self, map: &Map<'_>, spot: &Spot, mode: Mode) {
        if mode == Mode::PrimaryOnly {
            let message = format!(
                "needs mode priority_failover, and the mode of this route is {}{}",
                mode.label(),
                if map.has("mode") {
                    ""
                } else {
                    " (the default with one target); set it explicitly"
                }
            );
            self.report.refuse(spot, message);
        }
        for key in ["max_target_attempts", "max_upstream_sends"] {
            if !map.has(key) {
                let message = format!(
                    "needs an explicit routing.{key}: a second round may not raise the cost unseen"
                );
                self.report.refuse(spot, message);
            }
        }
        let given = |key| map.given_number(key);
        let (Some(attempts), Some(sends)) =
            (given("max_target_attempts"), given("max_upstream_sends"))
        else {
            return;
        };
        if let Some(extra) = given("max_retries")
            && extra < attempts
        {
            let message = format!(
                "{extra} allows {} tries in all, so after a first round of {attempts} none is left for the second; raise it to {attempts} or more",
                extra + 1
            );
            self.report.warn(&map.at("max_retries"), message);
        }
        let spot = map.at("max_upstream_sends");
        if sends < attempts + 1 {
            let message = format!(
                "{sends} leaves no send for the second round; with max_target_attempts {attempts} needed is at least {}",
                attempts + 1
            );
            self.report.refuse(&spot, message);
        } else if sends < attempts * 2 {
            let message = format!(
                "{sends} is less than two full rounds; with max_target_attempts {attempts} the second round may end early below {}",
                attempts * 2
            );
            self.report.warn(&spot, message);
        }
    }

    fn fallback(&mut self, map: &Map<'_>) -> Fallback {
        let mut fallback = Fallback {
            http_429: !map.has("fallback_strategy"),
            statuses: self.statuses(map, "fallback_http_statuses"),
            ..Fallback::default()
        };
        for item in map.texts("fallback_strategy") {
            let switch = match item.value {
                "http_429" => &mut fallback.http_429,
                "http_5xx" => &mut fallback.http_5xx,
                "transport_error" => &mut fallback.transport_error,
                "rate_limiting" => &mut fallback.rate_limiting,
                _ => continue,
            };
            if std::mem::replace(switch, true) {
                self.report
                    .refuse(&item.spot, format!("{} is listed twice", item.value));
            }
        }
        fallback
    }

    /// An internal provider's own retries count as sends too (R-P2).
    fn warn_about_retries(
        &mut self,
        map: &Map<'_>,
        route: &Map<'_>,
        used: &[Option<&Provider>],
        attempts_max: u32,
        sends_max: u32,
    ) {
        let retries = used.iter().flatten().filter_map(|provider| provider.retry);
        let Some(most) = retries.map(|retry| retry.attempts_max).max() else {
            return;
        };
        let wanted = attempts_max - 1 + most;
        if sends_max < wanted {
            let spot = match map.has("max_upstream_sends") {
                true => map.at("max_upstream_sends"),
                false => route.spot().clone(),
            };
            let message = format!(
                "{sends_max} sends end an operation before the {most} tries of its internal provider; set max_upstream_sends to {wanted} or more"
            );
            self.report.warn(&spot, message);
        }
    }
}

/// Numbers of the tables fit 32 bits by their bounds.
fn total(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
