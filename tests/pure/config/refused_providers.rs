//! Providers that are refused: adapters, addresses, secrets, retries, files they name.

use super::refused::{changed, refused, with_provider};
use super::{FakeEnv, GOOD, errors_in};

/// The good file with the secret of its first provider exchanged.
fn with_secret(secret: &str) -> String {
    changed("{ env: KEY_A }", secret)
}

// R-C1
#[test]
fn adapters_are_those_of_this_build() {
    refused(
        &changed("adapter: openai", "adapter: opnai"),
        &[
            "rondo.yaml:3:14: providers.a.adapter: unknown adapter \"opnai\"; did you mean `openai`? Available: openai, anthropic, vllm, azure_openai, openai_compatible, copilot, vertex, bedrock",
        ],
    );
    refused(
        &changed("adapter: openai", "adapter: cohere"),
        &[
            "rondo.yaml:3:14: providers.a.adapter: adapter cohere is not built into this version; available: openai, anthropic, vllm, azure_openai, openai_compatible, copilot, vertex, bedrock",
        ],
    );
    refused(
        &changed("adapter: openai", "adapter: cobol"),
        &[
            "rondo.yaml:3:14: providers.a.adapter: unknown adapter \"cobol\"; available: openai, anthropic, vllm, azure_openai, openai_compatible, copilot, vertex, bedrock",
        ],
    );
}

// R-C1
#[test]
fn a_base_url_names_a_host_and_nothing_secret() {
    refused(
        &with_provider("base_url: ftp://host"),
        &["rondo.yaml:4:15: providers.a.base_url: the scheme must be https or http"],
    );
    refused(
        &with_provider("base_url: https://"),
        &["rondo.yaml:4:15: providers.a.base_url: the host is missing"],
    );
    refused(
        &with_provider("base_url: https://:443/v1"),
        &["rondo.yaml:4:15: providers.a.base_url: the host is missing"],
    );
    refused(
        &with_provider("base_url: https://user:sk-live@host/"),
        &[
            "rondo.yaml:4:15: providers.a.base_url: a base URL has no user or password; put the credential under `keys`",
        ],
    );
    refused(
        &with_provider("base_url: \"https://host?x=1\""),
        &["rondo.yaml:4:15: providers.a.base_url: a base URL has no query (?...); leave it out"],
    );
    refused(
        &with_provider("base_url: \"https://host/#x\""),
        &["rondo.yaml:4:15: providers.a.base_url: a base URL has no fragment (#...); leave it out"],
    );
    refused(
        &with_provider("base_url: https://host:0"),
        &["rondo.yaml:4:15: providers.a.base_url: the port is not a number from 1 to 65535"],
    );
    refused(
        &with_provider("base_url: https://1.2.3"),
        &["rondo.yaml:4:15: providers.a.base_url: the host is not an IPv4 address"],
    );
    refused(
        &with_provider("base_url: https://[::1"),
        &["rondo.yaml:4:15: providers.a.base_url: not an IPv6 address in brackets"],
    );
    refused(
        &with_provider("base_url: https://-host-"),
        &[
            "rondo.yaml:4:15: providers.a.base_url: the host is neither a host name nor an IP address",
        ],
    );
    refused(
        &with_provider("base_url: https://host/a//b/../c"),
        &["rondo.yaml:4:15: providers.a.base_url: the path has an empty, `.` or `..` part"],
    );
}

// R-C4, R-X2
#[test]
fn a_missing_secret_is_refused_by_its_name() {
    refused(
        &with_secret("{ env: KEY_X }"),
        &[
            "rondo.yaml:4:41: providers.a.keys[0].secret.env: the environment variable KEY_X is not set; set it, or use { file: FILE }",
        ],
    );
    refused(
        &with_secret("{ file: key.txt }"),
        &[
            "rondo.yaml:4:42: providers.a.keys[0].secret.file: cannot read the file /etc/rondo/key.txt: no such file",
        ],
    );
    refused(
        &with_secret("{}"),
        &[
            "rondo.yaml:4:34: providers.a.keys[0].secret: exactly one source is needed: { env: VARIABLE }, { file: FILE } or { literal: TEXT }",
        ],
    );
    refused(
        &with_secret("{ env: KEY_A, file: key.txt }"),
        &[
            "rondo.yaml:4:34: providers.a.keys[0].secret: exactly one source is needed: { env: VARIABLE }, { file: FILE } or { literal: TEXT }",
        ],
    );
    let mut env = FakeEnv::usual();
    env.set("KEY_A", " ")
        .file("/etc/rondo/empty", "\n")
        .file("/etc/rondo/two", "a\nb");
    assert_eq!(
        errors_in(GOOD, &env),
        [
            "rondo.yaml:4:41: providers.a.keys[0].secret.env: the environment variable KEY_A is empty; set it, or use { file: FILE }",
        ]
    );
    assert_eq!(
        errors_in(&with_secret("{ file: empty }"), &env),
        ["rondo.yaml:4:42: providers.a.keys[0].secret.file: the file empty is empty",]
    );
    assert_eq!(
        errors_in(&with_secret("{ file: two }"), &env),
        [
            "rondo.yaml:4:42: providers.a.keys[0].secret.file: the secret holds line breaks, control characters or characters outside ASCII, which no header can carry",
        ]
    );
}

// R-C4, R-X2
#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    refused(
        &with_secret("sk-live-123"),
        &[
            "rondo.yaml:4:34: providers.a.keys[0].secret: found text; needed is { env: VARIABLE }, { file: FILE } or { literal: TEXT }",
        ],
    );
    refused(
        &with_secret("{ sk-live-123 }"),
        &[
            "rondo.yaml:4:36: providers.a.keys[0].secret: unknown key (not shown, it may be secret); allowed here: env, file, literal",
        ],
    );
    refused(
        &with_secret("{ env: sk-live-123 }"),
        &[
            "rondo.yaml:4:41: providers.a.keys[0].secret.env: not usable; needed is the name of an environment variable",
        ],
    );
    refused(
        &with_secret("{ env: gsk_abcdefgh1234567890 }"),
        &[
            "rondo.yaml:4:41: providers.a.keys[0].secret.env: the environment variable named here (not shown, since its name looks like a secret) is not set; set it, or use { file: FILE }",
        ],
    );
    refused(
        &with_secret("{ literal: 12345 }"),
        &[
            "rondo.yaml:4:45: providers.a.keys[0].secret.literal: found a whole number; needed is text; put it in quotes if it is meant as text",
        ],
    );
    refused(
        &with_secret("{ literl: sk-live-123 }"),
        &[
            "rondo.yaml:4:36: providers.a.keys[0].secret: unknown key (not shown, it may be secret); did you mean `literal`? Allowed here: env, file, literal",
        ],
    );
    refused(
        &with_secret("{ literal: \"sk-live\\n123\" }"),
        &[
            "rondo.yaml:4:45: providers.a.keys[0].secret.literal: the secret holds line breaks, control characters or characters outside ASCII, which no header can carry",
        ],
    );
}

// R-P1
#[test]
fn only_an_internal_provider_has_retries_and_they_are_finite() {
    refused(
        &with_provider("retry: { max_attempts: 3, max_elapsed_ms: 1000 }"),
        &[
            "rondo.yaml:4:12: providers.a.retry: the caller owns retries under `ownership: external`; remove this, or set `ownership: internal`",
        ],
    );
    refused(
        &with_provider("ownership: internal\nretry: { max_attempts: .inf, base_delay_ms: 9000 }"),
        &[
            "rondo.yaml:5:12: providers.a.retry.max_elapsed_ms: missing; needed is a whole number from 1 to 600000 (Longest time from the first failure to the last try)",
            "rondo.yaml:5:28: providers.a.retry.max_attempts: found a fraction; needed is a whole number from 1 to 32",
            "rondo.yaml:5:49: providers.a.retry.base_delay_ms: larger than max_delay_ms (5000); lower it, or raise max_delay_ms",
        ],
    );
    refused(
        &with_provider(
            "ownership: internal\nretry: { max_attempts: 0, max_elapsed_ms: 600001, base_delay_ms: 900, max_delay_ms: 800 }",
        ),
        &[
            "rondo.yaml:5:28: providers.a.retry.max_attempts: 0 is out of range; allowed is 1 to 32 (retries are finite)",
            "rondo.yaml:5:47: providers.a.retry.max_elapsed_ms: 600001 is out of range; allowed is 1 to 600000 (retries are finite)",
            "rondo.yaml:5:89: providers.a.retry.max_delay_ms: smaller than base_delay_ms (900); allowed is 900 to 60000",
        ],
    );
}

// R-C1
#[test]
fn trusted_statuses_are_error_statuses() {
    refused(
        &with_provider("trust_status: [429, 200, 429]"),
        &[
            "rondo.yaml:4:25: providers.a.trust_status[1]: 200 is out of range; allowed is 400 to 599",
            "rondo.yaml:4:30: providers.a.trust_status[2]: 429 is listed twice",
        ],
    );
}

// R-C1
#[test]
fn files_that_are_named_must_be_there() {
    refused(
        &with_provider("ca: x.pem"),
        &["rondo.yaml:4:9: providers.a.ca: cannot read the file /etc/rondo/x.pem: no such file"],
    );
    refused(
        &with_provider("mock: nowhere.yaml"),
        &[
            "rondo.yaml:4:11: providers.a.mock: cannot read the file /etc/rondo/nowhere.yaml: no such file",
        ],
    );
    refused(
        &with_provider("mock: { answer: [] }"),
        &[
            "rondo.yaml:4:11: providers.a.mock: mock script (inline): unknown field `answer`, expected `answers` or `seed` at line 4 column 13",
        ],
    );
    refused(
        &with_provider("mock: [ok]"),
        &[
            "rondo.yaml:4:11: providers.a.mock: found a list; needed is the name of a script file, or the script itself",
        ],
    );
}
