//! Every default of the configuration and the bounds of its lists, each with its reason. Bounds of operations are in `core/limits.rs`.

/// Data plane on loopback only: a gateway with keys in it is opened to a network on purpose or not at all.
pub const LISTEN: &str = "127.0.0.1:8080";
/// A chat request with a few images fits; a larger body is more often a mistake than a prompt.
pub const REQUEST_BODY_MAX: u64 = 32 << 20;
/// Sixteen of the largest bodies, or thousands of usual ones, and well below the memory of a small machine.
pub const BUFFERED_BYTES_MAX: u64 = 512 << 20;
/// What container platforms commonly allow between SIGTERM and SIGKILL.
pub const SHUTDOWN_GRACE_MS: u64 = 30_000;
/// The headers explain to a client which target answered, and carry nothing secret.
pub const ROUTE_HEADERS: bool = true;
/// A client that sends nothing for a minute while its body is awaited has gone.
pub const CLIENT_READ_TIMEOUT_MS: u64 = 60_000;
/// A client that takes nothing for a minute is not reading; its upstream should not generate for it.
pub const CLIENT_WRITE_TIMEOUT_MS: u64 = 60_000;
/// A head is a few kilobytes: half a minute is enough for the worst of links, and for one packet that is lost several times.
pub const CLIENT_HEADER_TIMEOUT_MS: u64 = 30_000;
/// Below any link that people use. What an upload has declared is reserved while it lasts, so who drips must not take for ever.
pub const MIN_UPLOAD_BYTES_PER_SECOND: u64 = 1024;
/// A tenth of a slow stream of tokens: who reads less than that is not reading, and its upstream should not generate for it.
pub const MIN_DOWNLOAD_BYTES_PER_SECOND: u64 = 256;
/// Some 20 KiB of memory each beside the body, so 200 MiB, and two file descriptors. A gateway that answers in ten seconds serves a
/// thousand a second within it; what comes above it is an outage or a mistake.
pub const MAX_IN_FLIGHT: u64 = 10_000;
/// Each operation over HTTP/1.1 has one, and as many are idle between requests.
pub const MAX_CONNECTIONS: u64 = 20_000;
/// Longer than the 60 s after which common load balancers drop an idle connection, so that they close first and no request meets a closing one.
pub const KEEPALIVE_TIMEOUT_MS: u64 = 75_000;
/// Metrics and the admin page show models, routes and errors: loopback only, unless a token is set.
pub const ADMIN_LISTEN: &str = "127.0.0.1:9090";
/// Azure's current form: no version to keep up to date, and the model stays in the body.
pub const AZURE_DEPLOYMENTS: bool = false;
/// A resource's key works at once; a token needs an identity set up, and expires.
pub const AZURE_AUTH: &str = "api_key";
/// Where GitHub exchanges tokens for those of Copilot.
pub const COPILOT_TOKEN_URL: &str = "https://api.github.com/copilot_internal/v2/token";
/// Copilot wants to know the program that asks.
pub const COPILOT_EDITOR_VERSION: &str = concat!("rondo/", env!("CARGO_PKG_VERSION"));
/// Its own name: Rondo does not pass itself off as another program. GitHub answers integrations that it knows.
pub const COPILOT_INTEGRATION_ID: &str = "rondo";
/// What its requests are for, in Copilot's words: a conversation that a person sees.
pub const COPILOT_INTENT: &str = "conversation-panel";
/// The version of Copilot's API that this adapter was written against.
pub const COPILOT_API_VERSION: &str = "2025-05-01";
/// Retries belong to the caller unless the operator says that the server behind this provider is his own.
pub const OWNERSHIP: &str = "external";
/// First retry of an own server: long enough for a queue slot to come free.
pub const RETRY_BASE_DELAY_MS: u64 = 250;
/// Doubling stops here: a longer pause would outlast most callers' patience.
pub const RETRY_MAX_DELAY_MS: u64 = 5_000;
/// A TCP and TLS handshake across the world takes under a second; five cover a lost packet or two.
pub const CONNECT_MS: u64 = 5_000;
/// Large prompts and reasoning models are silent for tens of seconds before their header.
pub const FIRST_BYTE_MS: u64 = 60_000;
/// Providers send a ping or a token at least every 30 s; twice that is silence.
pub const IDLE_MS: u64 = 60_000;
/// Ten minutes is what common client libraries wait for a whole answer.
pub const TOTAL_MS: u64 = 600_000;
/// As `TOTAL_MS`: an operation that its client has given up is not worth finishing.
pub const DEADLINE_MS: u64 = 600_000;
/// Throttle answers may move on by default: uncertified ones have been seen to be unexecuted in practice, and moving on is what fallback is for.
pub const FALLBACK_STRATEGY: &[&str] = &["http_429"];
/// One extra try of the first candidate, on its warm connection and cache, before another target is asked.
pub const STICKY_KEY_ATTEMPTS: u64 = 2;
/// Nobody reads the rest, so the upstream should stop generating.
pub const ON_CLIENT_DISCONNECT: &str = "abort";
/// A certified delay is respected for other operations too, but not beyond a minute: limits change and one probe is cheap.
pub const COOLDOWN_MAX_MS: u64 = 60_000;
/// A check is cheap, and an outage of half a minute is noticed by its failures first.
pub const HEALTH_INTERVAL_MS: u64 = 10_000;
/// A health endpoint that takes longer is not well.
pub const HEALTH_TIMEOUT_MS: u64 = 2_000;
/// Two good answers: one may be luck.
pub const HEALTH_HEALTHY: u64 = 2;
/// Three bad ones: two may be a restart.
pub const HEALTH_UNHEALTHY: u64 = 3;
/// Most health endpoints want no credential, and one that is not shown cannot be lost.
pub const HEALTH_AUTHENTICATED: bool = false;
/// Ten minutes: people top up, and one probe each is cheap.
pub const COOLDOWN_QUOTA_MS: u64 = 600_000;
/// The targets of a route are listed in order of preference; keys serve them.
pub const PRIORITY_MODE: &str = "provider";
/// The file says what is preferred, and the same request goes the same way twice.
pub const SCHEDULING_MODE: &str = "fixed_order";
/// A conversion can lose what a format cannot say, so native candidates come first.
pub const KEEP_PRIORITY_ON_CONVERSION: bool = false;
/// A gateway on loopback serves whoever is on the machine; who asks for keys gives them out first.
pub const CLIENT_KEYS_REQUIRED: bool = false;
/// Who trusts its clients to share need not count them; the process's own bound holds for all together.
pub const CLIENT_MAX_IN_FLIGHT: u64 = 0;
/// A store that needs no other server.
pub const LEDGER_STORE: &str = "sqlite";
/// Beside the working directory's other data.
pub const LEDGER_PATH: &str = "data/rondo.db";
/// Grouped writes keep the disk out of the way of requests.
pub const LEDGER_DURABILITY: &str = "batch";
/// A month: long enough to check an invoice, short enough for a small disk.
pub const LEDGER_KEEP_MS: u64 = 30 * 24 * 3_600_000;
/// Half a million operations: an hour of a store's absence at a hundred requests a second, and little of any disk.
pub const LEDGER_SPOOL_MAX_MB: u64 = 256;

/// The largest number of operations or connections that a file may allow: more than one machine has ports or memory for.
pub(super) const AT_ONCE_MAX: u64 = 1_000_000;
/// The largest least rate: a gigabit a second.
pub(super) const RATE_MIN_MAX: u64 = 125_000_000;
/// Listeners: a handful of addresses for each of two protocols.
pub(super) const LISTENERS_MAX: usize = 16;
/// Providers of one file. Each has connection pools and metric labels.
pub(super) const PROVIDERS_MAX: usize = 256;
/// Routes of one file. Each is a metric label.
pub(super) const ROUTES_MAX: usize = 1024;
/// Public names of one route.
pub(super) const MODELS_PER_ROUTE_MAX: usize = 256;
/// Keys of one provider.
pub(super) const KEYS_PER_PROVIDER_MAX: usize = 64;
/// Profiles of one file. Each is a metric label.
pub(super) const PROFILES_MAX: usize = 64;
/// Actions of one rule: each kind for a handful of targets and keys.
pub(super) const ACTIONS_PER_RULE_MAX: usize = 16;
/// Keys of clients. Each request is compared with all of them: a thousand take some tens of microseconds.
pub(super) const CLIENT_KEYS_MAX: usize = 1024;
/// The last priority. Room for gaps between any number of targets and keys.
pub(super) const PRIORITY_MAX: u64 = 9_999;
/// The largest share of one among its equals.
pub(super) const WEIGHT_MAX: u64 = 1_000;
/// How long ahead an expiring key is warned of: time to get another one through most processes.
pub(super) const EXPIRY_WARNED_MS: u64 = 7 * DAY_MS;
/// The profile of a route that names none.
pub const PROFILE: &str = "default";
/// One day: no setting in milliseconds means more.
pub(super) const DAY_MS: u64 = 86_400_000;
