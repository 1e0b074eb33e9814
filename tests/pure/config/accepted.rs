//! Files that are accepted, and what becomes of them.

use std::time::Duration;

use rondo::core::limits::ROUNDS_MAX;
use rondo::policy::provider::{Ownership, Provider, RetryRules};
use rondo::policy::route::ModelPattern;
use rondo::policy::routing::{Exhaustion, Fallback, Mode, OnDisconnect, Routing};
use rondo::policy::snapshot::{Durability, LedgerStore};

use super::{FakeEnv, GOOD, compile_in, snapshot, with_routing};

const ONE_TARGET: &str = "\
providers: { a: { adapter: openai } }
routes: [{ name: gpt, models: [\"*\"], targets: [{ name: only, provider: a }] }]
";

fn routing(lines: &str) -> Routing {
    snapshot(&with_routing(lines)).routes[0].routing.clone()
}

fn provider(settings: &str) -> Provider {
    let text = ONE_TARGET.replace("adapter: openai", &format!("adapter: openai, {settings}"));
    let snapshot = snapshot(&text);
    snapshot.providers[0].as_ref().clone()
}

#[test]
fn absent_settings_have_their_defaults() {
    let snapshot = snapshot(ONE_TARGET);
    let server = &snapshot.server;
    assert_eq!(server.listen.len(), 1);
    assert_eq!(server.listen[0].address, "127.0.0.1:8080");
    assert_eq!(server.threads, 4);
    assert_eq!(server.request_body_max, 32 << 20);
    assert_eq!(server.buffered_bytes_max, 512 << 20);
    assert_eq!(server.shutdown_grace, Duration::from_secs(30));
    assert!(server.route_headers);
    assert_eq!(server.client_read_timeout, Duration::from_secs(60));
    assert_eq!(server.keepalive_timeout, Duration::from_secs(75));
    assert_eq!(snapshot.admin.listen.as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(snapshot.admin.token, None);
    assert_eq!(snapshot.generation, 1);
    assert_eq!(snapshot.digest.len(), 16);
    assert_eq!(snapshot.ledger.durability, Durability::Batch);
    assert_eq!(snapshot.ledger.keep, Duration::from_secs(30 * 86_400));
    assert_eq!(snapshot.ledger.spool_bytes_max, 256 << 20);
    assert_eq!(snapshot.ledger.state_dir, None);
    let sqlite = LedgerStore::Sqlite {
        path: "data/rondo.db".to_owned(),
    };
    assert_eq!(snapshot.ledger.store, sqlite);
    let provider = &snapshot.providers[0];
    assert_eq!(&*provider.base.authority, "api.openai.com");
    assert!(provider.base.tls && provider.http2);
    assert_eq!(provider.ownership, Ownership::External);
    assert_eq!(provider.timeouts.connect, Duration::from_secs(5));
    assert_eq!(provider.timeouts.first_byte, Duration::from_secs(60));
    assert_eq!(provider.timeouts.idle, Duration::from_secs(60));
    assert_eq!(provider.timeouts.total, Duration::from_secs(600));
    assert_eq!(snapshot.routes[0].deadline, Duration::from_secs(600));
}

// R-S1, R-F2, R-F5, R-F6, R-K1
#[test]
fn routing_has_its_defaults_by_the_number_of_targets() {
    let one = snapshot(ONE_TARGET).routes[0].routing.clone();
    assert_eq!(one.mode, Mode::PrimaryOnly);
    assert_eq!((one.attempts_max, one.sends_max), (1, 2));
    let two = snapshot(GOOD).routes[0].routing.clone();
    let expected = Routing {
        mode: Mode::PriorityFailover,
        attempts_max: 2,
        sends_max: 3,
        exhaustion: None,
        fallback: Fallback {
            http_429: true,
            ..Fallback::default()
        },
        tries_max: None,
        fail_within: None,
        failover_within: None,
        sticky_tries: 2,
        on_client_disconnect: OnDisconnect::Abort,
        cooldown_max: Duration::from_secs(60),
        quota_aside: Duration::from_secs(600),
        failures: None,
    };
    assert_eq!(two, expected);
}

#[test]
fn cooldowns_can_be_told_apart() {
    let off = routing("cooldown: { max_ms: 0, quota_ms: 0, failures: off }");
    assert!(off.cooldown_max.is_zero() && off.quota_aside.is_zero() && off.failures.is_none());
    let given =
        routing("cooldown: { failures: { count: 5, within_ms: 30000, cooldown_ms: 10000 } }");
    let rules = given.failures.unwrap();
    assert_eq!(
        (rules.count, rules.within, rules.cooldown),
        (5, Duration::from_secs(30), Duration::from_secs(10))
    );
    assert_eq!(
        routing("max_failover_elapsed_ms: 30000").failover_within,
        Some(Duration::from_secs(30))
    );
}

// R-F2
#[test]
fn limits_belong_to_their_target() {
    let text = GOOD.replace(
        "provider: a }",
        "provider: a, limits: { requests_per_minute: 60, tokens_per_minute: 90000 } }",
    );
    let text = text.replace(
        "models:",
        "routing: { fallback_strategy: [rate_limiting] }\n    models:",
    );
    let route = &snapshot(&text).routes[0];
    assert!(route.routing.fallback.rate_limiting && !route.routing.fallback.http_429);
    let rules = *route.targets[0].limits.as_ref().unwrap().rules();
    assert_eq!(
        (
            rules.requests_per_minute,
            rules.tokens_per_minute,
            rules.concurrent
        ),
        (Some(60), Some(90_000), None)
    );
    assert!(route.targets[1].limits.is_none());
}

// R-K1
#[test]
fn no_sticky_attempt_and_one_both_mean_no_extra_try() {
    for lines in ["sticky_key_attempts: 0", "sticky_key_attempts: 1"] {
        let routing = routing(lines);
        assert_eq!((routing.sticky_tries, routing.sends_max), (1, 2));
    }
    assert_eq!(routing("sticky_key_attempts: 10").sends_max, 11);
}

// R-F3, R-F4, R-B1
#[test]
fn extras_become_totals() {
    let never = routing("max_retries: 0\nretry_on_failure_within_ms: 1");
    assert_eq!(never.tries_max, Some(1));
    assert_eq!(never.sends_allowed(), 1);
    assert_eq!(never.fail_within, Some(Duration::from_millis(1)));
    assert_eq!(routing("max_retries: 3").tries_max, Some(4));
}

// R-S2, R-B3
#[test]
fn the_second_round_is_on_only_with_one_more_round() {
    let on = "max_target_attempts: 2\nmax_upstream_sends: 4\nexhaustion_retry: { max_rounds: 1, max_wait_ms: 60000 }";
    let expected = Exhaustion {
        rounds_max: ROUNDS_MAX,
        wait_max: Duration::from_secs(60),
    };
    assert_eq!(routing(on).exhaustion, Some(expected));
    let off = routing("exhaustion_retry: { max_rounds: 0 }").exhaustion;
    assert_eq!(off.map(|exhaustion| exhaustion.rounds_max), Some(1));
}

// R-F2
#[test]
fn fallback_is_what_the_lists_say() {
    let routing = routing(
        "fallback_strategy: [http_5xx, transport_error]\nfallback_http_statuses: [404, 401]",
    );
    let expected = Fallback {
        http_429: false,
        http_5xx: true,
        transport_error: true,
        rate_limiting: false,
        statuses: vec![401, 404],
    };
    assert_eq!(routing.fallback, expected);
    assert_eq!(
        super::snapshot(&with_routing("fallback_strategy: []")).routes[0]
            .routing
            .fallback,
        Fallback::default()
    );
}

// R-F6
#[test]
fn primary_only_tries_one_target() {
    let routing = routing("mode: primary_only");
    assert_eq!((routing.attempts_max, routing.sends_max), (1, 2));
}

// R-P1, R-P2
#[test]
fn an_internal_provider_may_retry_within_finite_bounds() {
    let provider =
        provider("ownership: internal, retry: { max_attempts: 4, max_elapsed_ms: 20000 }");
    let expected = RetryRules {
        attempts_max: 4,
        elapsed_max: Duration::from_secs(20),
        delay_base: Duration::from_millis(250),
        delay_max: Duration::from_secs(5),
    };
    assert_eq!(provider.ownership, Ownership::Internal);
    assert_eq!(provider.retry, Some(expected));
    assert_eq!(super::accepted::provider("ownership: internal").retry, None);
}

#[test]
fn base_urls_are_taken_apart() {
    let cases = [
        (
            "https://API.example.com",
            true,
            "api.example.com",
            443,
            "api.example.com",
            "",
        ),
        (
            "https://api.example.com:443/",
            true,
            "api.example.com",
            443,
            "api.example.com",
            "",
        ),
        (
            "http://10.0.0.1:8000/v1/",
            false,
            "10.0.0.1",
            8000,
            "10.0.0.1:8000",
            "/v1",
        ),
        (
            "https://[::1]:8443/a/b",
            true,
            "::1",
            8443,
            "[::1]:8443",
            "/a/b",
        ),
        (
            "http://[2001:db8::1]",
            false,
            "2001:db8::1",
            80,
            "[2001:db8::1]",
            "",
        ),
        (
            "http://vllm_a:8000",
            false,
            "vllm_a",
            8000,
            "vllm_a:8000",
            "",
        ),
    ];
    for (url, tls, host, port, authority, path) in cases {
        let base = provider(&format!("base_url: \"{url}\"")).base;
        assert_eq!(
            (base.tls, &*base.host, base.port),
            (tls, host, port),
            "{url}"
        );
        assert_eq!((&*base.authority, &*base.path), (authority, path), "{url}");
    }
}

#[test]
fn http2_is_negotiated_over_tls_and_asked_for_in_clear_text() {
    assert!(!provider("base_url: \"http://127.0.0.1:8000\"").http2);
    assert!(provider("base_url: \"http://127.0.0.1:8000\", http2: true").http2);
    assert!(!provider("base_url: \"https://localhost\", http2: false").http2);
}

// R-C4
#[test]
fn secrets_come_from_the_environment_a_file_or_the_text() {
    let mut env = FakeEnv::usual();
    env.file("/etc/rondo/keys/b", "sk-of-b\n");
    let text = ONE_TARGET.replace(
        "adapter: openai",
        "adapter: openai, keys: [{ name: x, secret: { env: KEY_A } }, { name: y, secret: { file: keys/b } }, { name: z, secret: { literal: \"42\" } }]",
    );
    let snapshot = compile_in(&text, &env).unwrap().snapshot;
    let keys = &snapshot.providers[0].keys;
    let found: Vec<_> = keys
        .iter()
        .map(|key| (&*key.name, key.secret.expose()))
        .collect();
    assert_eq!(
        found,
        [("x", "sk-secret-of-a"), ("y", "sk-of-b"), ("z", "42")]
    );
}

#[test]
fn a_mock_needs_neither_address_nor_keys() {
    let mut env = FakeEnv::usual();
    env.file("/etc/rondo/script.yaml", "answers: [ok]");
    let text = ONE_TARGET.replace("adapter: openai", "adapter: vllm, mock: script.yaml");
    let snapshot = compile_in(&text, &env).unwrap().snapshot;
    let provider = &snapshot.providers[0];
    let mock = provider.mock.clone().unwrap();
    assert_eq!(
        (mock.origin.as_str(), &*mock.text),
        ("/etc/rondo/script.yaml", "answers: [ok]")
    );
    assert_eq!(&*provider.base.host, "mock.invalid");
}

#[test]
fn a_mock_in_place_keeps_its_values_and_their_types() {
    let script = "
    mock:
      answers:
        - { status: 429, ratio: 0.5, body: \"429\", on: true, none: null }
        - plain words, with: [colons, '#hash']
        - |
          two
          lines
";
    let text = ONE_TARGET.replace(
        "{ a: { adapter: openai } }",
        &format!("\n  a:\n    adapter: vllm{script}"),
    );
    let mock = snapshot(&text).providers[0].mock.clone().unwrap();
    let found: serde_yaml::Value = serde_yaml::from_str(&mock.text).unwrap();
    let outer: serde_yaml::Value = serde_yaml::from_str(script).unwrap();
    assert_eq!(mock.origin, "inline");
    assert_eq!(found, outer["mock"]);
}

#[test]
fn a_mistake_in_a_mock_is_told_where_it_stands_in_the_file() {
    let text = "
providers:
  a:
    adapter: vllm
    mock:
      # A comment.
      answers: [ok, ok]

      seed: soon
routes: [{ name: gpt, models: [\"*\"], targets: [{ name: only, provider: a }] }]
";
    let expected = "rondo.yaml:7:7: providers.a.mock: mock script (inline): seed: invalid type: string \"soon\", expected u64 at line 9 column 13";
    assert_eq!(super::errors(text), [expected]);
}

#[test]
fn models_are_whole_names_and_prefixes() {
    let snapshot = snapshot(GOOD);
    let expected = [
        ModelPattern::Exact("gpt-4o".into()),
        ModelPattern::Prefix("gpt-4o-mini".into()),
    ];
    assert_eq!(snapshot.routes[0].models, expected);
    assert!(snapshot.route("gpt-4o-mini-2024").is_some());
    assert!(snapshot.route("gpt-4o-x").is_none());
}

#[test]
fn the_admin_plane_can_be_off_or_public_with_a_token() {
    let off = snapshot(&format!("admin: {{ listen: off }}\n{GOOD}"));
    assert_eq!(off.admin.listen, None);
    let public = "admin: { listen: \"0.0.0.0:9090\", token: { env: ADMIN_TOKEN } }";
    let public = snapshot(&format!("{public}\n{GOOD}")).admin;
    assert_eq!(public.listen.as_deref(), Some("0.0.0.0:9090"));
    assert_eq!(public.token.unwrap().expose(), "secret-of-admin");
}

#[test]
fn listeners_serve_tls_with_files_beside_the_configuration() {
    let mut env = FakeEnv::usual();
    env.file("/etc/rondo/tls.crt", "-----BEGIN CERTIFICATE-----\n")
        .file("/etc/rondo/tls.key", "-----BEGIN EC PRIVATE KEY-----\n");
    let head = "server: { listen: [{ address: \"0.0.0.0:0\" }, { address: \"0.0.0.0:0\", tls: { cert: tls.crt, key: tls.key } }] }";
    let text = format!("{head}\n{GOOD}");
    let listen = compile_in(&text, &env).unwrap().snapshot.server.listen;
    let tls = listen[1].tls.clone().unwrap();
    assert_eq!(
        (tls.cert.as_str(), tls.key.as_str()),
        ("/etc/rondo/tls.crt", "/etc/rondo/tls.key")
    );
    env.file("/etc/rondo/tls.key", "nothing");
    let refused = compile_in(&text, &env).unwrap_err().to_string();
    assert!(
        refused.contains("server.listen[1].tls.key: the file tls.key holds no PEM block"),
        "{refused}"
    );
}

#[test]
fn the_ledger_is_read() {
    let text = GOOD.replace(
        "{ store: \"off\" }",
        "{ store: postgres, url: { env: DATABASE_URL }, durability: strict, keep: 12h, spool_max_mb: 2, state_dir: /var/lib/rondo }",
    );
    let ledger = snapshot(&text).ledger;
    assert_eq!(ledger.durability, Durability::Strict);
    assert_eq!(ledger.keep, Duration::from_secs(12 * 3600));
    assert_eq!(ledger.spool_bytes_max, 2 << 20);
    assert_eq!(ledger.state_dir.as_deref(), Some("/var/lib/rondo"));
    match ledger.store {
        LedgerStore::Postgres { url } => assert!(url.expose().starts_with("postgres://")),
        other => panic!("{other:?}"),
    }
    assert_eq!(snapshot(GOOD).ledger.store, LedgerStore::Off);
}
