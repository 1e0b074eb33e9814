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
/// Bytes of an HTTP/1.1 head: room for long tokens and a dozen cookies. Pingora reads a megabyte, and its parser begins anew with each
/// packet, so that a head in single bytes would cost a processor.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// The same on HTTP/2, as the list of fields that it is there; 32 bytes are added for each field (RFC 9113, 6.5.2).
pub const H2_HEAD_BYTES_MAX: u32 = 64 << 10;
/// Requests of one HTTP/2 connection at once: what clients assume before they are told.
pub const H2_STREAMS_MAX: u32 = 100;
/// Bytes that an HTTP/2 client may send before they are read, on a stream and on a connection: HTTP/2's own default. A body that nobody
/// reads yet holds no more.
pub const H2_RECEIVE_WINDOW: u32 = 65_535;
/// What the h2 crate allows for unread pieces of a body below 256 bytes, in bytes that they lack of it: a whole window in pieces of 32. Its
/// default ends the connection of a client that sends a hundred at once.
pub const H2_SMALL_FRAMES_MAX: usize = 512 << 10;
/// Bytes of an answer that wait for an HTTP/2 client's window or socket, for each stream: one read of an upstream's body. The h2 crate's
/// default is six times that, and a client that reads nothing could have a hundred of them.
pub const H2_SEND_BUFFER_MAX: usize = 64 << 10;
/// Streams that a client may open and reset before they were looked at. Who resets more in one go is gone (CVE-2023-44487).
pub const H2_RESETS_PENDING_MAX: usize = 20;
/// Streams whose reset by the gateway is remembered, so that what the client still sends for them is no error.
pub const H2_RESETS_REMEMBERED_MAX: usize = 50;
/// Streams of one connection that the gateway resets for the client's errors, such as opening too many: twice what may be open, as a client
/// can have sent that many before it hears of the bound. The h2 crate's default is a thousand.
pub const H2_REFUSALS_MAX: usize = 200;

const _: () = assert!(JITTER_WIDTH_MIN.as_millis() < JITTER_WIDTH_MAX.as_millis());
const _: () = assert!(PUSHBACK_DEFAULT.as_millis() < WAIT_MAX.as_millis());
const _: () = assert!(SENDS_MAX as usize >= TARGETS_PER_ROUTE_MAX * ROUNDS_MAX as usize);
const _: () = assert!(TARGETS_PER_ROUTE_MAX <= u64::BITS as usize);
const _: () = assert!(KEYS_PER_PROVIDER_MAX <= u64::BITS as usize);
const _: () =
    assert!(CANDIDATES_MAX <= u64::BITS as usize && CANDIDATES_MAX >= TARGETS_PER_ROUTE_MAX);
const _: () = assert!(RULES_MAX <= u64::BITS as usize);
const _: () = assert!(AFFINITY_ENTRIES_MAX.is_multiple_of(AFFINITY_SHARDS * AFFINITY_WAYS));
const _: () = assert!(H2_REFUSALS_MAX >= 2 * H2_STREAMS_MAX as usize);
const _: () = assert!(H2_RECEIVE_WINDOW as usize / 32 * (256 - 32) <= H2_SMALL_FRAMES_MAX);
