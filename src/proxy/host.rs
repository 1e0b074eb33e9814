//! What the data plane needs from the process around it: a clock, the current snapshot, and someone who counts and records.
//!
//! Not here: how things are counted. `telemetry` implements [`Observer`]; `app` puts the pieces together.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::core::api::Api;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::time::{MonoTime, WallTime};
use crate::core::usage::Usage;
use crate::executor::effect::Note;
use crate::policy::overload::{Overload, SlowPhase};
use crate::policy::route::Route;
use crate::policy::snapshot::Snapshot;

/// The process's clock: a monotonic origin taken once, and the wall.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose monotonic origin is one second ago, so that no instant it gives is zero.
    pub fn start() -> Clock {
        let now = Instant::now();
        Clock {
            origin: now.checked_sub(Duration::from_secs(1)).unwrap_or(now),
        }
    }

    /// Now, for waits and deadlines.
    pub fn mono(&self) -> MonoTime {
        MonoTime::ZERO.after(self.origin.elapsed())
    }

    /// Now, for records.
    pub fn wall(&self) -> WallTime {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        WallTime::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// Both at once.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            mono: self.mono(),
            wall: self.wall(),
        }
    }

    /// The instant of a timer as the executor wants it.
    pub fn at(&self, instant: Instant) -> MonoTime {
        MonoTime::ZERO.after(instant.saturating_duration_since(self.origin))
    }

    /// The instant as the runtime's timers want it.
    pub fn instant(&self, at: MonoTime) -> Instant {
        let far = Duration::from_secs(60 * 60 * 24 * 365);
        let offset = Duration::from_micros(at.as_micros());
        self.origin
            .checked_add(offset.min(self.origin.elapsed().saturating_add(far)))
            .unwrap_or(self.origin)
    }
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Monotonic.
    pub mono: MonoTime,
    /// Wall.
    pub wall: WallTime,
}

/// What is known of an operation when it begins. It does not change.
#[derive(Debug, Clone)]
pub struct OperationFacts {
    /// `x-request-id`: the client's if it sent a sane one, else made.
    pub id: Arc<str>,
    /// The configuration that it began with.
    pub snapshot: Arc<Snapshot>,
    /// Its route.
    pub route: Arc<Route>,
    /// Position of the route in the snapshot.
    pub route_index: usize,
    /// The client's API format.
    pub api: Api,
    /// The model name that the client gave.
    pub public_model: Arc<str>,
    /// The configured name of the client's key.
    pub client_key: Option<Arc<str>>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// When the request header was complete.
    pub started: Stamp,
    /// Bytes of the request body.
    pub request_bytes: u64,
}

/// What the shell knows of an attempt beside the executor's note.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptExtras<'a> {
    /// The provider's own id of the request.
    pub upstream_request_id: Option<&'a str>,
    /// When the response header arrived.
    pub first_byte: Option<Stamp>,
}

/// The end of an operation, as the client's side saw it.
#[derive(Debug, Clone)]
pub struct OperationEnd {
    /// HTTP status that was written; 499 when the client left before it had the whole answer, but 504 when time had run out by then.
    pub status: u16,
    /// How it ended.
    pub outcome: OperationOutcome,
    /// State of the record.
    pub state: State,
    /// Why it ended so; empty for a plain success.
    pub reason: &'static str,
    /// Target whose answer was delivered, as a position in the route.
    pub target: Option<usize>,
    /// Sends used.
    pub sends: u32,
    /// Rounds entered.
    pub rounds: u8,
    /// Time slept between rounds.
    pub waited: Duration,
    /// When the first byte of the answer was written to the client.
    pub first_byte: Option<Stamp>,
    /// When it ended.
    pub ended: Stamp,
    /// Time spent in the gateway itself: up to the first byte, without upload, upstream and wait.
    pub overhead: Duration,
    /// Bytes of the response body written.
    pub response_bytes: u64,
    /// What the delivered answer said that it cost, as far as it was read.
    pub usage: Option<Usage>,
}

/// A request that was refused before an operation began: no route, too large, no capacity.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// `x-request-id`.
    pub id: Arc<str>,
    /// Its route, when one was found.
    pub route: Option<Arc<str>>,
    /// Its API format, when the path named one.
    pub api: Option<Api>,
    /// HTTP status that was written; 499 when the client left during the upload.
    pub status: u16,
    /// The stable code of the error.
    pub code: &'static str,
    /// The bound at which it was turned away, if it was that.
    pub overload: Option<Overload>,
    /// From the request header to the answer.
    pub latency: Duration,
}

/// How an exchange of a token or a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchanged {
    /// There is a new one.
    Renewed,
    /// The endpoint refused.
    Refused,
    /// Its answer, or what a program printed, is not what it should be.
    Malformed,
    /// It cannot be reached.
    Unreachable,
    /// It did not answer in time.
    TimedOut,
    /// What it takes is missing on this machine: a file, a program, a key that signs.
    Local,
}

impl Exchanged {
    /// Every result.
    pub const ALL: [Exchanged; 6] = [
        Exchanged::Renewed,
        Exchanged::Refused,
        Exchanged::Malformed,
        Exchanged::Unreachable,
        Exchanged::TimedOut,
        Exchanged::Local,
    ];

    /// The label of metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Exchanged::Renewed => "renewed",
            Exchanged::Refused => "refused",
            Exchanged::Malformed => "malformed",
            Exchanged::Unreachable => "unreachable",
            Exchanged::TimedOut => "timed_out",
            Exchanged::Local => "local",
        }
    }
}

/// How reading on for a client that has left came to its end; the `end` label of `rondo_drains_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DrainEnd {
    /// The answer ended and told its usage.
    Usage,
    /// The answer ended and told none.
    Complete,
    /// A bound of time or bytes came first.
    Limit,
    /// The upstream broke.
    Failed,
    /// It was not begun: too many are read on already.
    Refused,
}

impl DrainEnd {
    /// Every end.
    pub const ALL: [DrainEnd; 5] = [
        DrainEnd::Usage,
        DrainEnd::Complete,
        DrainEnd::Limit,
        DrainEnd::Failed,
        DrainEnd::Refused,
    ];

    /// The label.
    pub const fn label(self) -> &'static str {
        match self {
            DrainEnd::Usage => "usage",
            DrainEnd::Complete => "complete",
            DrainEnd::Limit => "limit",
            DrainEnd::Failed => "failed",
            DrainEnd::Refused => "refused",
        }
    }
}

/// Counts and records. Called on the data plane's threads: must not block.
pub trait Observer: Send + Sync + 'static {
    /// A request header was read.
    fn request_opened(&self);
    /// The request of [`Observer::request_opened`] has ended, however.
    fn request_closed(&self);
    /// An operation began.
    fn operation_started(&self, facts: &OperationFacts);
    /// The executor noted something.
    fn note(&self, facts: &OperationFacts, note: &Note, extras: AttemptExtras<'_>, at: Stamp);
    /// An operation ended; called once for each that started. Gives the number of its record, if it has one.
    fn operation_ended(&self, facts: &OperationFacts, end: &OperationEnd) -> Option<u64>;
    /// Usage of an operation that has ended, from an answer that was read on for it. Nothing else of it has changed.
    fn usage_came(&self, facts: &OperationFacts, sequence: u64, usage: Usage);
    /// An answer is read on although its client has left.
    fn drain_begun(&self);
    /// That came to its end, or was refused before it began.
    fn drain_ended(&self, end: DrainEnd);
    /// A request was refused before it became an operation.
    fn refused(&self, refusal: &Refusal);
    /// A request or connection was turned away at a bound of the process.
    fn overloaded(&self, limit: Overload);
    /// A client was too slow and was ended for it.
    fn slow_client(&self, phase: SlowPhase);
    /// An exchange for a provider's token or session ended.
    fn token_exchanged(&self, provider: &str, result: Exchanged);
}
