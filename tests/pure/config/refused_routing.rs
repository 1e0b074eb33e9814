//! Rules of failover that are refused, and exactly with which lines.

use super::refused::refused;
use super::with_routing;

// R-S4: the spread of waiters and the size of their room are constants of the code, so no key of the round sets them.
#[test]
fn the_spread_and_the_room_of_waiters_are_no_settings() {
    for key in ["jitter_ms", "jitter_width_ms", "sleepers", "held_bytes"] {
        let text = with_routing(&format!(
            "max_target_attempts: 2\nmax_upstream_sends: 4\nexhaustion_retry: {{ max_rounds: 1, max_wait_ms: 10, {key}: 5 }}"
        ));
        refused(
            &text,
            &[&format!(
                "rondo.yaml:17:59: routes[0].routing.exhaustion_retry.{key}: unknown key; allowed here: max_rounds, max_wait_ms"
            )],
        );
    }
}

// R-S1, R-S2
#[test]
fn the_second_round_is_one_and_its_wait_is_bounded() {
    refused(
        &with_routing("exhaustion_retry: { max_rounds: 2, max_wait_ms: 60001 }"),
        &[
            "rondo.yaml:15:39: routes[0].routing.exhaustion_retry.max_rounds: 2 is out of range; allowed is 0 or 1 (0 is off and 1 is one more round; more would be a retry loop in disguise)",
            "rondo.yaml:15:55: routes[0].routing.exhaustion_retry.max_wait_ms: 60001 is out of range; allowed is 1 to 60000 (beyond a minute the caller is the better place to wait)",
        ],
    );
    refused(
        &with_routing("exhaustion_retry: {}"),
        &[
            "rondo.yaml:15:25: routes[0].routing.exhaustion_retry.max_rounds: missing; needed is 0 or 1 (Rounds after the first: 0 is off)",
        ],
    );
    refused(
        &with_routing("exhaustion_retry: true"),
        &[
            "rondo.yaml:15:25: routes[0].routing.exhaustion_retry: found true or false; needed is a mapping of these keys: max_rounds, max_wait_ms",
        ],
    );
    refused(
        &with_routing(
            "max_target_attempts: 2\nmax_upstream_sends: 4\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 0 }",
        ),
        &[
            "rondo.yaml:17:55: routes[0].routing.exhaustion_retry.max_wait_ms: 0 is out of range; allowed is 1 to 60000 (beyond a minute the caller is the better place to wait)",
        ],
    );
    refused(
        &with_routing(
            "max_target_attempts: 2\nmax_upstream_sends: 4\nexhaustion_retry: { max_rounds: 1 }",
        ),
        &[
            "rondo.yaml:17:25: routes[0].routing.exhaustion_retry.max_wait_ms: missing; max_rounds 1 needs the longest wait, a whole number from 1 to 60000",
        ],
    );
    let short = with_routing("max_target_attempts: 2\nmax_upstream_sends: 4\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }")
        .replace("    targets:", "    deadline_ms: 2000\n    targets:");
    refused(
        &short,
        &[
            "rondo.yaml:18:55: routes[0].routing.exhaustion_retry.max_wait_ms: not below deadline_ms (2000), so no wait of that length could ever end in time",
        ],
    );
    let off = with_routing("exhaustion_retry: { max_rounds: 0, max_wait_ms: 0 }");
    refused(
        &off,
        &[
            "rondo.yaml:15:55: routes[0].routing.exhaustion_retry.max_wait_ms: 0 is out of range; allowed is 1 to 60000 (beyond a minute the caller is the better place to wait)",
        ],
    );
}

// R-S3
#[test]
fn the_second_round_needs_its_cost_written_down() {
    refused(
        &with_routing("exhaustion_retry: { max_rounds: 1, max_wait_ms: 10 }"),
        &[
            "rondo.yaml:15:25: routes[0].routing.exhaustion_retry: needs an explicit routing.max_target_attempts: a second round may not raise the cost unseen",
            "rondo.yaml:15:25: routes[0].routing.exhaustion_retry: needs an explicit routing.max_upstream_sends: a second round may not raise the cost unseen",
        ],
    );
    refused(
        &with_routing(
            "max_target_attempts: 2\nmax_upstream_sends: 2\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 10 }",
        ),
        &[
            "rondo.yaml:16:27: routes[0].routing.max_upstream_sends: 2 leaves no send for the second round; with max_target_attempts 2 needed is at least 3",
        ],
    );
    refused(
        &with_routing(
            "mode: primary_only\nmax_target_attempts: 1\nmax_upstream_sends: 2\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 10 }",
        ),
        &[
            "rondo.yaml:18:25: routes[0].routing.exhaustion_retry: needs mode priority_failover, and the mode of this route is primary_only",
        ],
    );
    let one = with_routing("max_target_attempts: 1\nmax_upstream_sends: 2\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 10 }")
        .replace("      - { name: backup, provider: b, model: gpt-4o-prod }\n", "");
    refused(
        &one,
        &[
            "rondo.yaml:16:25: routes[0].routing.exhaustion_retry: needs mode priority_failover, and the mode of this route is primary_only (the default with one target); set it explicitly",
        ],
    );
}

// R-F2
#[test]
fn fallback_names_known_failures_and_error_statuses_once() {
    refused(
        &with_routing(
            "fallback_strategy: [http_429, http_429, http_500]\nfallback_http_statuses: [399, 600, 404, 404]",
        ),
        &[
            "rondo.yaml:15:37: routes[0].routing.fallback_strategy[1]: http_429 is listed twice",
            "rondo.yaml:15:47: routes[0].routing.fallback_strategy[2]: unknown value \"http_500\"; did you mean `http_5xx`? Needed is one of http_429, http_5xx, transport_error, rate_limiting",
            "rondo.yaml:16:32: routes[0].routing.fallback_http_statuses[0]: 399 is out of range; allowed is 400 to 599",
            "rondo.yaml:16:37: routes[0].routing.fallback_http_statuses[1]: 600 is out of range; allowed is 400 to 599",
            "rondo.yaml:16:47: routes[0].routing.fallback_http_statuses[3]: 404 is listed twice",
        ],
    );
}

// R-F3, R-F4, R-F5
#[test]
fn limits_on_moving_on_need_failover() {
    refused(
        &with_routing("mode: primary_only\nmax_retries: 1\nretry_on_failure_within_ms: 5000"),
        &[
            "rondo.yaml:16:20: routes[0].routing.max_retries: needs failover, and the mode of this route is primary_only; remove this, or set `mode: priority_failover`",
            "rondo.yaml:17:35: routes[0].routing.retry_on_failure_within_ms: needs failover, and the mode of this route is primary_only; remove this, or set `mode: priority_failover`",
        ],
    );
    refused(
        &with_routing("max_retries: -1\nretry_on_failure_within_ms: 0"),
        &[
            "rondo.yaml:15:20: routes[0].routing.max_retries: -1 is out of range; allowed is 0 to 256",
            "rondo.yaml:16:35: routes[0].routing.retry_on_failure_within_ms: 0 is out of range; allowed is 1 to 86400000",
        ],
    );
    let one = with_routing("max_retries: 1").replace(
        "      - { name: backup, provider: b, model: gpt-4o-prod }\n",
        "",
    );
    refused(
        &one,
        &[
            "rondo.yaml:14:20: routes[0].routing.max_retries: needs failover, and the mode of this route is primary_only (the default with one target); remove this, or set `mode: priority_failover`",
        ],
    );
}

// R-B1, R-B2, R-K1
#[test]
fn budgets_have_bounds() {
    refused(
        &with_routing(
            "sticky_key_attempts: 11\nmax_target_attempts: 65\nmax_upstream_sends: 257\non_client_disconnect: Abort\ncooldown: { max_ms: 60001 }",
        ),
        &[
            "rondo.yaml:15:28: routes[0].routing.sticky_key_attempts: 11 is out of range; allowed is 0 to 10",
            "rondo.yaml:16:28: routes[0].routing.max_target_attempts: 65 is out of range; allowed is 1 to 64",
            "rondo.yaml:17:27: routes[0].routing.max_upstream_sends: 257 is out of range; allowed is 1 to 256",
            "rondo.yaml:18:29: routes[0].routing.on_client_disconnect: unknown value \"Abort\"; did you mean `abort`? Needed is one of abort, drain",
            "rondo.yaml:19:27: routes[0].routing.cooldown.max_ms: 60001 is out of range; allowed is 0 to 60000 (limits change, and after a minute one probe is cheap)",
        ],
    );
    refused(
        &with_routing("max_target_attempts: 0\nmax_upstream_sends: 0"),
        &[
            "rondo.yaml:15:28: routes[0].routing.max_target_attempts: 0 is out of range; allowed is 1 to 64",
            "rondo.yaml:16:27: routes[0].routing.max_upstream_sends: 0 is out of range; allowed is 1 to 256",
        ],
    );
}

#[test]
fn limits_and_failures_are_told_where_they_are_wrong() {
    let limited = |limits: &str| {
        super::GOOD.replace(
            "provider: a }",
            &format!("provider: a, limits: {limits} }}"),
        )
    };
    let cases = [
        (
            limited("{}"),
            "routes[0].targets[0].limits: no limit is given; needed is one of requests_per_minute, tokens_per_minute and concurrent",
        ),
        (
            limited("{ concurrent: 0 }"),
            "routes[0].targets[0].limits.concurrent: 0 is out of range; allowed is 1 to 1000000",
        ),
        (
            with_routing("cooldown: { failures: on }"),
            "routes[0].routing.cooldown.failures: ",
        ),
        (
            with_routing("cooldown: { failures: { count: 3, within_ms: 1 } }"),
            "routes[0].routing.cooldown.failures.cooldown_ms: missing",
        ),
        (
            with_routing("mode: primary_only\nmax_failover_elapsed_ms: 1"),
            "routes[0].routing.max_failover_elapsed_ms: needs failover",
        ),
    ];
    for (text, expected) in cases {
        let found = super::errors(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn health_checks_are_told_where_they_are_wrong() {
    let checked = |rules: &str| {
        super::GOOD.replacen(
            "adapter: openai",
            &format!("adapter: openai\n    health: {rules}"),
            1,
        )
    };
    let cases = [
        ("{}", "providers.a.health.path: missing"),
        (
            "{ path: health }",
            "providers.a.health.path: not a path; needed is one that begins with `/`",
        ),
        ("{ path: \"/a b\" }", "providers.a.health.path: not a path"),
        (
            "{ path: /h, interval_ms: 100, timeout_ms: 200 }",
            "providers.a.health.timeout_ms: longer than interval_ms (100)",
        ),
        (
            "{ path: /h, unhealthy: 0 }",
            "providers.a.health.unhealthy: 0 is out of range; allowed is 1 to 100",
        ),
    ];
    for (rules, expected) in cases {
        let found = super::errors(&checked(rules));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}
