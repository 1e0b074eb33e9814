//! Every bound that is a constant of the code, with the reason for its size. Settings have theirs in `config/defaults.rs`.

use std::time::Duration;

/// Rounds that any operation can have. Two: the first, and one after a wait (R-B3). More would be a retry loop in disguise.
pub const ROUNDS_MAX: u8 = 2;
/// Longest wait between rounds that a configuration may ask for (R-S2). Beyond a minute the caller is the better place to wait.
pub const WAIT_MAX: Duration = Duration::from_millis(60_000);
/// Narrowest spread of waiters with one Retry-After (R-S14): below this a fleet still arrives as one burst.
pub const JITTER_WIDTH_MIN: Duration = Duration::from_millis(50);
/// Widest spread (R-S14): more only adds latency.
pub const JITTER_WIDTH_MAX: Duration = Duration::from_millis(500);
/// Delay assumed for a rejection without a usable directive (R-S13): long enough for a per-second window to move on.
pub const PUSHBACK_DEFAULT: Duration = Duration::from_millis(250);
/// Longest delay that is told apart; what is longer saturates here (2^53 - 1 ms, the largest integer every JSON reader keeps).
pub const PUSHBACK_MAX: Duration = Duration::from_millis(9_007_199_254_740_991);
/// What an attempt needs at least after a wait (R-S10). A send that cannot finish a TLS handshake and a header is not worth a wait.
pub const ATTEMPT_ALLOWANCE_MIN: Duration = Duration::from_millis(250);
/// Operations of one route that may sleep at once (R-B6). Each is a send to come; a throttled provider should not meet more at its reopening.
pub const WAITERS_PER_ROUTE_MAX: u16 = 256;
/// Bytes of held bodies of one route's sleepers (R-B6): a quarter of the default process limit.
pub const WAITING_BYTES_PER_ROUTE_MAX: u64 = 128 << 20;
/// Bytes of an error body that are read, classified and kept (R-A2, R-D2). Provider errors are a few KiB.
pub const REPLY_BODY_MAX: usize = 64 << 10;
/// How long an error body may take after its header before it is classified by what is there (R-A2).
pub const ERROR_BODY_TIME_MAX: Duration = Duration::from_millis(250);
/// Bytes of a good stream that are held while looking for its first meaningful event (R-A4).
pub const PEEK_BYTES_MAX: usize = 64 << 10;
/// How long a good stream is held after its first byte (R-A4). At the bound it commits: fail open.
pub const PEEK_TIME_MAX: Duration = Duration::from_millis(750);
/// Bytes read from a discarded response so that its connection can be used again.
pub const DRAIN_BYTES_MAX: usize = 64 << 10;
/// Time spent on that.
pub const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// How long an answer is read on after its client has left, for its usage. Most of what is left of a generation comes within it; a
/// longer one is worth more unfinished.
pub const READ_ON_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of that: some ten thousand events, far more than ten seconds of one generation.
pub const READ_ON_BYTES_MAX: usize = 1 << 20;
/// Answers of the process that are read on at once. Each is a connection and a generation that nobody waits for; when clients leave
/// in crowds, stopping the generations is worth more than their counts.
pub const READ_ON_MAX: usize = 64;
/// How long a key that its provider does not accept is set aside. A minute: a rotated key is often only slow to be known everywhere.
pub const KEY_REFUSED_ASIDE: Duration = Duration::from_secs(60);
/// How long one operation that tries a target again keeps the others from it. A second: by then most answers have begun, and one that has
/// not must not keep a target that works from everybody.
pub const PROBE_HOLD: Duration = Duration::from_secs(1);
/// What a target asks for that has as many attempts as it may. Nobody knows when one ends; a second is what a 503 asks for, too.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The step in which the minutes of local limits move on: a quarter of a second is a small part of a minute, and 241 numbers are few.
pub const LIMIT_BUCKET_MICROS: u64 = 250_000;
/// The longest answer that is estimated, in tokens. No model writes more in one answer; what a client asks beyond it is no estimate.
pub const ANSWER_TOKENS_MAX: u64 = 1_000_000;
/// Keys of one provider. The tried keys of a pool are a bit set of this width.
pub const KEYS_PER_PROVIDER_MAX: usize = 64;
/// Targets of one route. The tried set is a bit set of this width.
pub const TARGETS_PER_ROUTE_MAX: usize = 64;
/// Extra sends of a route for a hundred of its operations. A fifth: enough for a few bad seconds, and a broken target is met with at most
/// 1.2 times its traffic.
pub const RETRY_BUDGET_PERCENT: u64 = 20;
/// The window of that share, in seconds: long enough to smooth bursts, short enough to follow an outage.
pub const RETRY_BUDGET_SECONDS: u64 = 10;
/// Extra sends that every second brings besides: a route with little traffic may retry each of its operations (C23).
pub const RETRY_BUDGET_FLOOR_PER_SECOND: u64 = 10;
/// Candidates of one operation. With `global_key` a target can stand in several places, and the tried set is a bit set of this width.
pub const CANDIDATES_MAX: usize = 64;
/// Rules of one configuration. Those that match a request are a bit set of this width.
pub const RULES_MAX: usize = 64;
/// How long a client is kept at the candidate of its last good answer. Prompt caches of the large providers live for five minutes.
pub const AFFINITY_TIME: Duration = Duration::from_secs(300);
/// Clients that are remembered so: 2.5 MiB when all shards are in use. Above it the oldest of the same set is forgotten, which costs a cold cache.
pub const AFFINITY_ENTRIES_MAX: usize = 65_536;
/// Parts of the table that are locked apart: more than the cores of most machines, so that two operations rarely meet.
pub const AFFINITY_SHARDS: usize = 64;
/// Entries that one client may stand in: enough that the oldest is rarely a fresh one, few enough to be looked through at once.
pub const AFFINITY_WAYS: usize = 8;
/// Sends that a configuration may allow one operation.
pub const SENDS_MAX: u32 = 256;
/// Operations kept for the admin page.
pub const RECENT_OPERATIONS_MAX: usize = 1024;
/// Settled records between two collections for the store (R-L7). Ten times what one process ends in a second; they hold some 60 MiB.
pub const SETTLED_RECORDS_MAX: usize = 65_536;

const _: () = assert!(JITTER_WIDTH_MIN.as_millis() < JITTER_WIDTH_MAX.as_millis());
const _: () = assert!(PUSHBACK_DEFAULT.as_millis() < WAIT_MAX.as_millis());
const _: () = assert!(SENDS_MAX as usize >= TARGETS_PER_ROUTE_MAX * ROUNDS_MAX as usize);
const _: () = assert!(TARGETS_PER_ROUTE_MAX <= u64::BITS as usize);
const _: () = assert!(KEYS_PER_PROVIDER_MAX <= u64::BITS as usize);
const _: () =
    assert!(CANDIDATES_MAX <= u64::BITS as usize && CANDIDATES_MAX >= TARGETS_PER_ROUTE_MAX);
const _: () = assert!(RULES_MAX <= u64::BITS as usize);
const _: () = assert!(AFFINITY_ENTRIES_MAX.is_multiple_of(AFFINITY_SHARDS * AFFINITY_WAYS));
