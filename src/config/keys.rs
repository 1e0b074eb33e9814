//! Every key of the configuration: what it is, what it may be, what its absence means. Tables only.

use super::defaults as preset;
use super::schema::Preset::{Flag, Number, Word, Words};
use super::schema::{Choice, Field, Given, Kind, Need, Preset, Shape, Text, millis};
use crate::core::limits::{SENDS_MAX, TARGETS_PER_ROUTE_MAX, WAIT_MAX};

/// Adapters that a file may name. Which of them a build has is the catalog's knowledge.
pub(super) const ADAPTERS: [&str; 18] = [
    "openai",
    "azure_openai",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "mistral",
    "groq",
    "deepseek",
    "openrouter",
    "copilot",
    "vllm",
    "sglang",
    "tgi",
    "ollama",
    "llama_cpp",
    "openai_compatible",
    "anthropic_compatible",
];

const TARGETS_MAX: u64 = TARGETS_PER_ROUTE_MAX as u64;

const fn shape(about: &'static str, fields: &'static [Field]) -> Shape {
    Shape {
        about,
        fields,
        given: Given::Required,
    }
}

const fn required(key: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Required,
        about,
    }
}

const fn defaulted(key: &'static str, kind: Kind, default: Preset, about: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Default(default),
        about,
    }
}

const fn optional(
    key: &'static str,
    kind: Kind,
    absent: &'static str,
    about: &'static str,
) -> Field {
    Field {
        key,
        kind,
        need: Need::Absent(absent),
        about,
    }
}

const fn number(min: u64, max: u64, why: &'static str) -> Kind {
    Kind::Number { min, max, why }
}

const fn list(of: &'static Kind, min: usize, max: usize) -> Kind {
    Kind::List { of, min, max }
}

const fn choice(word: &'static str, about: &'static str) -> Choice {
    Choice { word, about }
}

static STATUS: Kind = number(400, 599, "");
const STATUSES: Kind = list(&STATUS, 0, 200);

/// The whole file.
pub(super) static ROOT: Shape = shape(
    "Configuration of Rondo, a gateway between applications and model providers.",
    &[
        optional(
            "server",
            Kind::Mapping(&SERVER),
            "every default",
            "The data plane: where clients connect, and process-wide bounds.",
        ),
        optional(
            "admin",
            Kind::Mapping(&ADMIN),
            "every default",
            "Metrics, health, the admin API and its page.",
        ),
        required(
            "providers",
            Kind::Named {
                of: &PROVIDER,
                max: preset::PROVIDERS_MAX,
            },
            "Where models run, under names of your choice.",
        ),
        required(
            "routes",
            list(&ROUTE_ITEM, 1, preset::ROUTES_MAX),
            "Public model names and the ordered targets behind them.",
        ),
        optional(
            "ledger",
            Kind::Mapping(&LEDGER),
            "every default",
            "Where each operation and each attempt is recorded. A change needs a restart.",
        ),
    ],
);

static SERVER: Shape = shape(
    "The data plane.",
    &[
        optional(
            "listen",
            list(&LISTEN_ITEM, 1, preset::LISTENERS_MAX),
            "one cleartext listener on 127.0.0.1:8080",
            "Where clients connect. A change needs a restart.",
        ),
        optional(
            "threads",
            number(1, 512, ""),
            "one for each core",
            "Worker threads. A change needs a restart.",
        ),
        defaulted(
            "max_request_body",
            Kind::Size {
                min: 1 << 10,
                max: 1 << 30,
            },
            Number(preset::REQUEST_BODY_MAX),
            "Largest request body; a larger one is answered with 413.",
        ),
        defaulted(
            "max_buffered_bytes",
            Kind::Size {
                min: 1 << 10,
                max: 1 << 40,
            },
            Number(preset::BUFFERED_BYTES_MAX),
            "Request bodies held over the whole process; above it a new request is answered with 503 before it is read.",
        ),
        defaulted(
            "shutdown_grace_ms",
            number(0, 3_600_000, ""),
            Number(preset::SHUTDOWN_GRACE_MS),
            "Time for operations in flight after SIGTERM. A change needs a restart.",
        ),
        defaulted(
            "route_headers",
            Kind::Flag,
            Flag(preset::ROUTE_HEADERS),
            "Whether answers carry x-rondo-* headers.",
        ),
        defaulted(
            "client_read_timeout_ms",
            millis(1),
            Number(preset::CLIENT_READ_TIMEOUT_MS),
            "Time for a client's request head, and for each pause inside its body.",
        ),
        defaulted(
            "keepalive_timeout_ms",
            millis(1),
            Number(preset::KEEPALIVE_TIMEOUT_MS),
            "How long an idle client connection is kept between requests.",
        ),
    ],
);

static LISTEN_ITEM: Kind = Kind::Mapping(&LISTEN);
static LISTEN: Shape = shape(
    "One listener: HTTP/1.1 and HTTP/2 with prior knowledge, or both by ALPN with `tls`.",
    &[
        required("address", Kind::Text(Text::Listen), "Address and port."),
        optional(
            "tls",
            Kind::Mapping(&LISTEN_TLS),
            "cleartext",
            "Serves TLS with this certificate.",
        ),
    ],
);
static LISTEN_TLS: Shape = shape(
    "Certificate of a listener. Relative names start at the configuration file's directory.",
    &[
        required(
            "cert",
            Kind::Text(Text::File),
            "PEM file with the certificate chain, the server's own first.",
        ),
        required(
            "key",
            Kind::Text(Text::File),
            "PEM file with the private key.",
        ),
    ],
);

static ADMIN: Shape = shape(
    "The admin plane.",
    &[
        defaulted(
            "listen",
            Kind::Text(Text::ListenOrOff),
            Word(preset::ADMIN_LISTEN),
            "Address and port, or \"off\". An address that others can reach needs `token`. A change needs a restart.",
        ),
        optional(
            "token",
            Kind::Mapping(&SECRET),
            "no token is asked for",
            "Bearer token that callers of the admin plane present.",
        ),
    ],
);

static SECRET: Shape = Shape {
    about: "Where a secret comes from; exactly one of the three.",
    fields: &[
        optional(
            "env",
            Kind::Text(Text::Variable),
            "",
            "Name of an environment variable that holds the secret.",
        ),
        optional(
            "file",
            Kind::Text(Text::File),
            "",
            "File that holds the secret; white space around it is cut. A relative name starts at the configuration file's directory.",
        ),
        optional(
            "literal",
            Kind::Text(Text::Any),
            "",
            "The secret itself. For trying things out only: it is then in the file for all to read.",
        ),
    ],
    given: Given::OneSecret,
};

static PROVIDER: Shape = shape(
    "One provider.",
    &[
        required(
            "adapter",
            Kind::Text(Text::Adapter),
            "The dialect this provider speaks: paths, credentials, error codes.",
        ),
        optional(
            "base_url",
            Kind::Text(Text::Url),
            "the adapter's public address, where it has one",
            "Scheme, host and optional path prefix; one that ends in a version, such as /v1, takes the place of the native version. Required unless the adapter has a public address or `mock` is set.",
        ),
        defaulted(
            "ownership",
            Kind::Choice(OWNERSHIP),
            Word(preset::OWNERSHIP),
            "Who retries after a failure of this provider.",
        ),
        optional(
            "retry",
            Kind::Mapping(&RETRY),
            "no retries at the same target",
            "The gateway's own retries; only under `ownership: internal`.",
        ),
        defaulted(
            "trust_status",
            STATUSES,
            Words(&[]),
            "Bare statuses that you declare to be sent before the request runs, e.g. [429] for your own vLLM. They then move on safely and count for the second round.",
        ),
        optional(
            "timeouts",
            Kind::Mapping(&TIMEOUTS),
            "every default",
            "Time limits of one attempt.",
        ),
        optional(
            "http2",
            Kind::Flag,
            "true over https, false over http",
            "HTTP/2. Over https it is negotiated (ALPN); over http, true means that the server is known to speak it.",
        ),
        optional(
            "keys",
            list(&KEY_ITEM, 0, preset::KEYS_PER_PROVIDER_MAX),
            "requests carry no credential",
            "Credentials, in order of preference.",
        ),
        optional(
            "mock",
            Kind::Script,
            "requests go to base_url",
            "A scripted provider inside this process answers instead: a script file (relative to the configuration file's directory) or the script itself. base_url and keys may then be omitted.",
        ),
        optional(
            "ca",
            Kind::Text(Text::File),
            "the system's roots alone",
            "PEM file with further certificates to trust for this provider. A relative name starts at the configuration file's directory.",
        ),
    ],
);

const OWNERSHIP: &[Choice] = &[
    choice(
        "external",
        "The caller retries: answers pass with their delay headers.",
    ),
    choice(
        "internal",
        "The gateway retries, as `retry` says; exhausted answers tell the caller not to.",
    ),
];

static RETRY: Shape = shape(
    "Retries at the same target, by capped exponential backoff with jitter.",
    &[
        required(
            "max_attempts",
            number(1, 32, "retries are finite"),
            "Tries in all, the first included.",
        ),
        required(
            "max_elapsed_ms",
            number(1, 600_000, "retries are finite"),
            "Longest time from the first failure to the last try.",
        ),
        defaulted(
            "base_delay_ms",
            number(1, 60_000, ""),
            Number(preset::RETRY_BASE_DELAY_MS),
            "Delay before the second try; doubles from there.",
        ),
        defaulted(
            "max_delay_ms",
            number(1, 60_000, ""),
            Number(preset::RETRY_MAX_DELAY_MS),
            "Longest delay.",
        ),
    ],
);

static TIMEOUTS: Shape = shape(
    "Time limits of one attempt, in milliseconds.",
    &[
        defaulted(
            "connect_ms",
            millis(1),
            Number(preset::CONNECT_MS),
            "TCP and TLS together.",
        ),
        defaulted(
            "first_byte_ms",
            millis(1),
            Number(preset::FIRST_BYTE_MS),
            "From the end of the request to the response header.",
        ),
        defaulted(
            "idle_ms",
            millis(1),
            Number(preset::IDLE_MS),
            "Longest silence inside an answer.",
        ),
        defaulted(
            "total_ms",
            millis(1),
            Number(preset::TOTAL_MS),
            "The whole answer, from its request to its last byte.",
        ),
    ],
);

static KEY_ITEM: Kind = Kind::Mapping(&KEY);
static KEY: Shape = shape(
    "One credential.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name for records and the admin page; not the credential.",
        ),
        required("secret", Kind::Mapping(&SECRET), "The credential."),
    ],
);

static ROUTE_ITEM: Kind = Kind::Mapping(&ROUTE);
static ROUTE: Shape = shape(
    "One route.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name of the route; the `route` label of metrics.",
        ),
        required(
            "models",
            list(&MODEL_ITEM, 1, preset::MODELS_PER_ROUTE_MAX),
            "Public model names that clients ask for; `*` at the end matches any rest. A whole name wins over a prefix, a longer prefix over a shorter one.",
        ),
        defaulted(
            "deadline_ms",
            millis(1),
            Number(preset::DEADLINE_MS),
            "Time for one operation over all attempts and waits. A client's own timeout header can shorten it.",
        ),
        required(
            "targets",
            list(&TARGET_ITEM, 1, TARGETS_PER_ROUTE_MAX),
            "Where to send, in order.",
        ),
        optional(
            "routing",
            Kind::Mapping(&ROUTING),
            "every default",
            "How the route fails over.",
        ),
    ],
);
static MODEL_ITEM: Kind = Kind::Text(Text::Pattern);

static TARGET_ITEM: Kind = Kind::Mapping(&TARGET);
static TARGET: Shape = shape(
    "One target.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name of the target, unique in its route; the `target` label of metrics.",
        ),
        required(
            "provider",
            Kind::Text(Text::Name),
            "A name from `providers`.",
        ),
        optional(
            "model",
            Kind::Text(Text::Model),
            "the client's model name",
            "The provider's own name of the model.",
        ),
    ],
);

static ROUTING: Shape = shape(
    "How a route fails over.",
    &[
        optional(
            "mode",
            Kind::Choice(MODE),
            "priority_failover with two or more targets, else primary_only",
            "Whether other targets than the first are tried.",
        ),
        optional(
            "max_target_attempts",
            number(1, TARGETS_MAX, ""),
            "the number of targets",
            "Target attempts in one round, at most.",
        ),
        optional(
            "max_upstream_sends",
            number(1, SENDS_MAX as u64, ""),
            "max_target_attempts, plus the extra sticky tries",
            "Requests that one operation may send upstream, at most, over all rounds and retries. Never refilled.",
        ),
        optional(
            "exhaustion_retry",
            Kind::Mapping(&EXHAUSTION),
            "off",
            "One more round after every target was throttled, if the wait is short.",
        ),
        defaulted(
            "fallback_strategy",
            list(&STRATEGY_ITEM, 0, 4),
            Words(preset::FALLBACK_STRATEGY),
            "Which failures move on to the next target, beside those that are proved not to have run.",
        ),
        defaulted(
            "fallback_http_statuses",
            STATUSES,
            Words(&[]),
            "Single statuses that also move on, e.g. [401, 402, 404].",
        ),
        optional(
            "max_retries",
            number(0, SENDS_MAX as u64, ""),
            "not limited beyond the other budgets",
            "Tries after the first, over all rounds; 0 is never. Needs failover.",
        ),
        optional(
            "retry_on_failure_within_ms",
            millis(1),
            "failures move on however late they come",
            "A failure later than this after its attempt began is returned at once. Needs failover.",
        ),
        defaulted(
            "sticky_key_attempts",
            number(0, 10, ""),
            Number(preset::STICKY_KEY_ATTEMPTS),
            "Tries of the first candidate in all; 0 and 1 both mean no extra one.",
        ),
        defaulted(
            "on_client_disconnect",
            Kind::Choice(DISCONNECT),
            Word(preset::ON_CLIENT_DISCONNECT),
            "What happens upstream when the client leaves in the middle of an answer.",
        ),
        optional(
            "cooldown",
            Kind::Mapping(&COOLDOWN),
            "every default",
            "How long a throttled target is set aside for other operations.",
        ),
    ],
);

const MODE: &[Choice] = &[
    choice("primary_only", "The first target alone."),
    choice("priority_failover", "The targets in their order."),
];

static EXHAUSTION: Shape = shape(
    "The second round. It needs mode priority_failover and explicit max_target_attempts and max_upstream_sends.",
    &[
        required(
            "max_rounds",
            number(
                0,
                1,
                "0 is off and 1 is one more round; more would be a retry loop in disguise",
            ),
            "Rounds after the first: 0 is off.",
        ),
        optional(
            "max_wait_ms",
            number(
                1,
                WAIT_MAX.as_millis() as u64,
                "beyond a minute the caller is the better place to wait",
            ),
            "required when max_rounds is 1",
            "Longest delay directed by the providers that is waited for; below deadline_ms. A longer one ends the operation at once.",
        ),
    ],
);

static STRATEGY_ITEM: Kind = Kind::Choice(STRATEGY);
const STRATEGY: &[Choice] = &[
    choice(
        "http_429",
        "Throttle and overload answers that are not proved to be unexecuted.",
    ),
    choice(
        "http_5xx",
        "Complete 5xx answers and errors in a stream before output. The request may have run.",
    ),
    choice(
        "transport_error",
        "Broken connections and timeouts before output. The request may have run.",
    ),
    choice(
        "rate_limiting",
        "Locally exhausted limits; no effect in this version.",
    ),
];

const DISCONNECT: &[Choice] = &[
    choice(
        "abort",
        "Close the upstream at once, so that it stops generating.",
    ),
    choice("drain", "Read on within a bound, to learn the final usage."),
];

static COOLDOWN: Shape = shape(
    "How long a certified delay sets a target aside.",
    &[defaulted(
        "max_ms",
        number(
            0,
            60_000,
            "limits change, and after a minute one probe is cheap",
        ),
        Number(preset::COOLDOWN_MAX_MS),
        "Longest time; 0 turns it off.",
    )],
);

static LEDGER: Shape = shape(
    "Records of operations and attempts.",
    &[
        defaulted(
            "store",
            Kind::Choice(STORE),
            Word(preset::LEDGER_STORE),
            "Where records go.",
        ),
        defaulted(
            "path",
            Kind::Text(Text::File),
            Word(preset::LEDGER_PATH),
            "Database file of sqlite. A relative name starts at the working directory.",
        ),
        optional(
            "url",
            Kind::Mapping(&SECRET),
            "required for postgres",
            "Connection URL of postgres; it carries a password, so it is a secret.",
        ),
        defaulted(
            "durability",
            Kind::Choice(DURABILITY),
            Word(preset::LEDGER_DURABILITY),
            "When a record counts as written.",
        ),
        defaulted(
            "keep",
            Kind::Span {
                min: 3_600_000,
                max: 3650 * preset::DAY_MS,
            },
            Number(preset::LEDGER_KEEP_MS),
            "Age at which records are deleted.",
        ),
    ],
);

const STORE: &[Choice] = &[
    choice("sqlite", "A file on this machine."),
    choice("postgres", "A PostgreSQL database."),
    choice("off", "Nothing is recorded."),
];

const DURABILITY: &[Choice] = &[
    choice(
        "batch",
        "In groups; a crash of the machine may lose the last one.",
    ),
    choice("strict", "Each group is on disk before the next begins."),
];
