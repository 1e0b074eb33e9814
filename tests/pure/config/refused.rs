//! Files that are refused, and exactly with which lines: the text itself, names, the server, the admin plane, the ledger.
//!
//! Not here: providers and their secrets (`refused_providers`), routing (`refused_routing`).

use super::{GOOD, errors, with_routing};

/// A text is refused with these lines and no others.
#[track_caller]
pub fn refused(text: &str, expected: &[&str]) {
    let found = errors(text);
    assert_eq!(found, expected, "{text}");
}

/// The good file with one part exchanged.
#[track_caller]
pub fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the good file has no {from}");
    GOOD.replacen(from, to, 1)
}

/// The good file with these lines in its first provider, from line 4 on.
pub fn with_provider(lines: &str) -> String {
    let indented: String = lines.lines().map(|line| format!("\n    {line}")).collect();
    changed("adapter: openai", &format!("adapter: openai{indented}"))
}

/// The good file with these lines before all others.
fn with_head(lines: &str) -> String {
    format!("{lines}\n{GOOD}")
}

// R-C1
#[test]
fn what_is_not_one_yaml_mapping_is_refused() {
    refused(
        "",
        &[
            "rondo.yaml:1:1: config: the file is empty; at least `providers` and `routes` are needed",
        ],
    );
    refused(
        "# a comment\n",
        &[
            "rondo.yaml:1:1: config: the file is empty; at least `providers` and `routes` are needed",
        ],
    );
    refused(
        "- a\n",
        &[
            "rondo.yaml:1:1: config: found a list; needed is a mapping of these keys: server, admin, providers, routes, profiles, scheduler, rules, client_keys, ledger",
        ],
    );
    refused(
        "providers: [1, 2\n",
        &[
            "rondo.yaml:2:1: providers[2]: not valid YAML: while parsing a flow sequence, expected ',' or ']'",
        ],
    );
    refused(
        "providers:\n\t- b\n",
        &[
            "rondo.yaml:2:2: providers: not valid YAML: tabs disallowed within this context (block indentation)",
        ],
    );
    refused(
        "providers: {}\nroutes: []\n---\nroutes: []\n",
        &[
            "rondo.yaml:3:1: config: a second YAML document begins here; one file holds one document",
        ],
    );
}

// R-C1
#[test]
fn yaml_that_hides_what_is_meant_is_refused() {
    refused(
        &changed("models:", "models: &names"),
        &[
            "rondo.yaml:10:20: routes[0].models: anchors (&name) are not supported; write the value out where it is needed",
        ],
    );
    refused(
        &changed("provider: a ", "provider: *names "),
        &[
            "rondo.yaml:12:36: routes[0].targets[0].provider: not valid YAML: while parsing node, found unknown anchor",
        ],
    );
    refused(
        &changed("models:", "models: !list"),
        &["rondo.yaml:10:19: routes[0].models: tags (!name) are not supported; leave the tag out"],
    );
    refused(
        &changed("- { name: primary,", "- { <<: { model: x }, name: primary,"),
        &[
            "rondo.yaml:12:11: routes[0].targets[0]: merge keys (<<) are not supported; write the keys out",
        ],
    );
    refused(
        &changed("- { name: primary,", "- { [a]: b, name: primary,"),
        &["rondo.yaml:12:11: routes[0].targets[0]: a key must be text, not a list or a mapping"],
    );
}

// R-C1
#[test]
fn unknown_and_duplicate_keys_are_refused() {
    refused(
        &changed("adapter: openai", "adaptor: openai"),
        &[
            "rondo.yaml:3:5: providers.a.adapter: missing; needed is the name of an adapter (The dialect this provider speaks: paths, credentials, error codes)",
            "rondo.yaml:3:5: providers.a.adaptor: unknown key; did you mean `adapter`? Allowed here: adapter, base_url, deployments, api_version, auth, aws, gcp, copilot, ownership, retry, trust_status, timeouts, http2, keys, health, mock, ca",
        ],
    );
    refused(
        &with_provider("adapter: openai"),
        &[
            "rondo.yaml:4:5: providers.a.adapter: this key stands here twice; it was first given on line 3",
        ],
    );
    refused(
        &with_routing("max_rounds: 1"),
        &[
            "rondo.yaml:15:7: routes[0].routing.max_rounds: unknown key; allowed here: mode, max_target_attempts, max_upstream_sends, exhaustion_retry, fallback_strategy, fallback_http_statuses, max_retries, retry_on_failure_within_ms, max_failover_elapsed_ms, sticky_key_attempts, on_client_disconnect, cooldown, priority_mode, scheduling_mode, keep_priority_on_conversion, hash_on",
        ],
    );
    refused(
        "providers: { \"a b\": { adapter: openai } }\nroutes: none\nrutes: 1\n",
        &[
            "rondo.yaml:1:14: providers.\"a b\": not a usable name; needed is a name of 1 to 64 letters, digits, `.`, `_` and `-`",
            "rondo.yaml:2:9: routes: found text; needed is a list, each item a mapping of these keys: name, models, deadline_ms, targets, profile, routing",
            "rondo.yaml:3:1: rutes: unknown key; did you mean `routes`? Allowed here: server, admin, providers, routes, profiles, scheduler, rules, client_keys, ledger",
        ],
    );
}

// R-C1
#[test]
fn all_errors_are_told_at_once_in_the_order_of_the_file() {
    let text = "\
server: { threads: 0 }
providers:
  a: { adapter: opnai, ownership: both }
routes:
  - name: gpt
    models: [\"a*b\"]
    deadline_ms: 0
    targets: [{ name: x, provider: c }]
    routing: { max_rtries: 1 }
";
    refused(
        text,
        &[
            "rondo.yaml:1:20: server.threads: 0 is out of range; allowed is 1 to 512",
            "rondo.yaml:3:17: providers.a.adapter: unknown adapter \"opnai\"; did you mean `openai`? Available: openai, anthropic, vllm, azure_openai, openai_compatible, copilot, vertex, bedrock",
            "rondo.yaml:3:35: providers.a.ownership: unknown value \"both\"; needed is one of external, internal",
            "rondo.yaml:6:14: routes[0].models[0]: `*` stands at the end only, and once",
            "rondo.yaml:7:18: routes[0].deadline_ms: 0 is out of range; allowed is 1 to 86400000",
            "rondo.yaml:8:36: routes[0].targets[0].provider: no provider is called c; there are: a",
            "rondo.yaml:9:16: routes[0].routing.max_rtries: unknown key; did you mean `max_retries`? Allowed here: mode, max_target_attempts, max_upstream_sends, exhaustion_retry, fallback_strategy, fallback_http_statuses, max_retries, retry_on_failure_within_ms, max_failover_elapsed_ms, sticky_key_attempts, on_client_disconnect, cooldown, priority_mode, scheduling_mode, keep_priority_on_conversion, hash_on",
        ],
    );
}

// R-C1
#[test]
fn missing_keys_are_told_at_the_mapping_that_lacks_them() {
    refused(
        "{}",
        &[
            "rondo.yaml:1:1: providers: missing; needed is a mapping from names to settings (Where models run, under names of your choice)",
            "rondo.yaml:1:1: routes: missing; needed is a list of 1 to 1024 (Public model names and the ordered targets behind them)",
        ],
    );
    refused(
        "providers: {}\nroutes: []\n",
        &[
            "rondo.yaml:1:12: providers: empty; at least one is needed",
            "rondo.yaml:2:9: routes: empty; at least 1 is needed",
        ],
    );
    refused(
        &changed("    targets:", "    targets: []\n    tarkets:"),
        &[
            "rondo.yaml:11:14: routes[0].targets: empty; at least 1 is needed",
            "rondo.yaml:12:5: routes[0].tarkets: unknown key; did you mean `targets`? Allowed here: name, models, deadline_ms, targets, profile, routing",
        ],
    );
    refused(
        &changed("adapter: openai", "adapter:"),
        &["rondo.yaml:3:12: providers.a.adapter: no value; needed is the name of an adapter"],
    );
    refused(
        &changed("adapter: openai", "adapter: vllm"),
        &[
            "rondo.yaml:3:5: providers.a.base_url: missing; adapter vllm has no public address, so needed is a URL such as http://127.0.0.1:8000",
        ],
    );
}

// R-C1
#[test]
fn values_of_the_wrong_type_are_refused() {
    refused(
        &changed("adapter: openai", "adapter: [openai]"),
        &["rondo.yaml:3:14: providers.a.adapter: found a list; needed is the name of an adapter"],
    );
    refused(
        &with_provider("timeouts: { connect_ms: 0, idle: 5, total_ms: \"5\", first_byte_ms: 1.5 }"),
        &[
            "rondo.yaml:4:29: providers.a.timeouts.connect_ms: 0 is out of range; allowed is 1 to 86400000",
            "rondo.yaml:4:32: providers.a.timeouts.idle: unknown key; allowed here: connect_ms, first_byte_ms, idle_ms, total_ms",
            "rondo.yaml:4:51: providers.a.timeouts.total_ms: found text; needed is a whole number from 1 to 86400000 without quotes",
            "rondo.yaml:4:71: providers.a.timeouts.first_byte_ms: found a fraction; needed is a whole number from 1 to 86400000",
        ],
    );
    refused(
        &with_provider("http2: yes"),
        &["rondo.yaml:4:12: providers.a.http2: needed is true or false; write true"],
    );
    refused(
        &with_provider("ownership: both"),
        &[
            "rondo.yaml:4:16: providers.a.ownership: unknown value \"both\"; needed is one of external, internal",
        ],
    );
    refused(
        &with_head("server: { max_request_body: 32MB, route_headers: \"true\" }"),
        &[
            "rondo.yaml:1:29: server.max_request_body: cannot read \"32MB\"; needed is a size from 1KiB to 1GiB, written like 512KiB, 32MiB or 1GiB",
            "rondo.yaml:1:50: server.route_headers: needed is true or false without quotes",
        ],
    );
    refused(
        &changed("name: gpt", "name: 4"),
        &[
            "rondo.yaml:9:11: routes[0].name: found a whole number; needed is a name of 1 to 64 letters, digits, `.`, `_` and `-`; put it in quotes if it is meant as text",
        ],
    );
}

// R-C1
#[test]
fn names_and_models_are_unique_and_references_lead_somewhere() {
    refused(
        &changed("name: backup, provider: b", "name: primary, provider: bb"),
        &[
            "rondo.yaml:13:17: routes[0].targets[1].name: primary is the name of two targets; names are unique within a route",
            "rondo.yaml:13:36: routes[0].targets[1].provider: no provider is called bb; there are: a, b",
        ],
    );
    refused(
        &changed("name: backup", "name: back up"),
        &[
            "rondo.yaml:13:17: routes[0].targets[1].name: not usable; needed is a name of 1 to 64 letters, digits, `.`, `_` and `-`",
        ],
    );
    refused(
        &changed("\"gpt-4o-mini*\"", "\"gpt-4o\", \"a*b\", \"**\", \"\""),
        &[
            "rondo.yaml:10:24: routes[0].models[1]: gpt-4o is listed twice in this route",
            "rondo.yaml:10:34: routes[0].models[2]: `*` stands at the end only, and once",
            "rondo.yaml:10:41: routes[0].models[3]: `*` stands at the end only, and once",
            "rondo.yaml:10:47: routes[0].models[4]: not usable; needed is a model name, or its beginning with one `*` at the end",
        ],
    );
    refused(
        &changed(
            "  - name: gpt",
            "  - { name: other, models: [\"gpt-4o-mini*\"], targets: [{ name: x, provider: a }] }\n  - name: other",
        ),
        &[
            "rondo.yaml:10:11: routes[1].name: other is the name of two routes; names are unique",
            "rondo.yaml:11:24: routes[1].models[1]: gpt-4o-mini* is listed twice in this route",
        ],
    );
    refused(
        &changed("keys: [", "keys: [{ name: main, secret: { env: KEY_B } }, "),
        &[
            "rondo.yaml:4:60: providers.a.keys[1].name: main is the name of two keys; names are unique within a provider",
        ],
    );
}

// R-B7
#[test]
fn the_server_is_reachable_and_bounded() {
    refused(
        &with_head("server: { max_buffered_bytes: 1MiB }"),
        &[
            "rondo.yaml:1:31: server.max_buffered_bytes: smaller than max_request_body, so the largest request could never be taken; raise it, or lower max_request_body",
        ],
    );
    refused(
        &with_head(
            "server:\n  listen:\n    - address: localhost\n    - address: \"1.2.3:80\"\n    - address: \"127.0.0.1:80\"\n    - { address: \"127.0.0.1:80\", tls: { cert: c } }\n    - address: \"127.0.0.1:99999\"",
        ),
        &[
            "rondo.yaml:3:16: server.listen[0].address: no port in the address; write it as address:port, e.g. 127.0.0.1:8080 or [::1]:8080",
            "rondo.yaml:4:16: server.listen[1].address: the host is not an IPv4 address; write it as address:port, e.g. 127.0.0.1:8080 or [::1]:8080",
            "rondo.yaml:6:18: server.listen[3].address: 127.0.0.1:80 is listed twice",
            "rondo.yaml:6:39: server.listen[3].tls.key: missing; needed is a file name (PEM file with the private key)",
            "rondo.yaml:6:47: server.listen[3].tls.cert: cannot read the file /etc/rondo/c: no such file",
            "rondo.yaml:7:16: server.listen[4].address: the port is not a number from 0 to 65535; write it as address:port, e.g. 127.0.0.1:8080 or [::1]:8080",
        ],
    );
}

// R-C1
#[test]
fn an_admin_plane_that_others_reach_needs_a_token() {
    refused(
        &with_head("admin: { listen: \"0.0.0.0:9090\" }"),
        &[
            "rondo.yaml:1:18: admin.listen: 0.0.0.0:9090 can be reached from outside this machine, which needs `admin.token`; set one, or listen on 127.0.0.1",
        ],
    );
    refused(
        &with_head("admin: { listen: \"[::]:9090\" }"),
        &[
            "rondo.yaml:1:18: admin.listen: [::]:9090 can be reached from outside this machine, which needs `admin.token`; set one, or listen on 127.0.0.1",
        ],
    );
    refused(
        &with_head("admin: { listen: \"127.0.0.1:8080\" }"),
        &["rondo.yaml:1:18: admin.listen: 127.0.0.1:8080 is taken by server.listen"],
    );
    refused(
        &with_head("admin: { token: secret }"),
        &[
            "rondo.yaml:1:17: admin.token: found text; needed is { env: VARIABLE }, { file: FILE } or { literal: TEXT }",
        ],
    );
}

// R-C1
#[test]
fn each_store_has_its_own_keys() {
    let ledger = |settings: &str| changed("{ store: \"off\" }", settings);
    refused(
        &ledger("{ store: postgres, path: x }"),
        &[
            "rondo.yaml:14:9: ledger.url: missing; store postgres needs the connection URL, e.g. { env: DATABASE_URL }",
            "rondo.yaml:14:34: ledger.path: belongs to store sqlite; remove it, or set `store: sqlite`",
        ],
    );
    refused(
        &ledger("{ url: { env: DATABASE_URL }, keep: 30, durability: fast }"),
        &[
            "rondo.yaml:14:16: ledger.url: belongs to store postgres; remove it, or set `store: postgres`",
            "rondo.yaml:14:45: ledger.keep: cannot read \"30\"; needed is a duration from 1h to 3650d, written like 90s, 15m, 12h or 30d",
            "rondo.yaml:14:61: ledger.durability: unknown value \"fast\"; needed is one of batch, strict",
        ],
    );
    refused(
        &ledger("{ store: off, keep: 5m }"),
        &[
            "rondo.yaml:14:29: ledger.keep: 5m is out of range; allowed is a duration from 1h to 3650d, written like 90s, 15m, 12h or 30d",
        ],
    );
    refused(
        &ledger("{ store: postgres, url: \"postgres://rondo:sk-live@db\" }"),
        &[
            "rondo.yaml:14:33: ledger.url: found text; needed is { env: VARIABLE }, { file: FILE } or { literal: TEXT }",
        ],
    );
}
