//! What a store of records must do, and what is asked of it. The stores themselves live right of the line, in `store/`.
//!
//! Not here: SQL, connections, files, threads. Invariants, which every store enforces by itself: a row whose state is not pending
//! never changes again, usage apart (R-L1); a row belongs to one operation of one boot, and another operation with the same
//! `x-request-id` gets a row of its own ([`renamed`]).

use std::sync::Arc;
use std::time::Duration;

use super::columns::{StoredRecord, Value};
use super::entry::Record;
use crate::core::settlement::State;
use crate::core::time::WallTime;
use crate::core::usage::Usage;

/// One thing to write. All of it is written in one transaction, with the pieces handed over together.
#[derive(Debug, Clone)]
pub enum Piece {
    /// An operation as it stands, with its attempts as they stand; or as it ended.
    Live(Arc<Record>),
    /// The same, read back from the spool.
    Spooled(StoredRecord),
    /// The usage of an operation that was settled before its usage was known.
    Usage(LateUsage),
}

impl Piece {
    /// Rows that are gone when it is lost: the operation's and its attempts'; one for usage.
    pub fn rows(&self) -> u64 {
        let attempts = match self {
            Piece::Live(record) => record.attempts.len(),
            Piece::Spooled(record) => record.attempts.len(),
            Piece::Usage(_) => 0,
        };
        u64::try_from(attempts)
            .unwrap_or(u64::MAX)
            .saturating_add(1)
    }
}

/// `reason` of an operation whose process ended first (R-L6). Its open attempts get [`ABANDONED_DELIVERY`]; both get the time of the
/// settlement as `finished_at` and no latency.
pub const ABANDONED_REASON: &str = "process_ended";
/// `delivery` of an attempt whose process ended first: it may have run.
pub const ABANDONED_DELIVERY: &str = "ambiguous";

/// Usage that came after the settlement, from an answer that was read on for it (R-L8). It is written over usage that is missing or
/// partial; nothing else of the row changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateUsage {
    /// The operation.
    pub operation_id: Arc<str>,
    /// The process that served it.
    pub boot_id: Arc<str>,
    /// Its number in that process.
    pub sequence: u64,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Completion tokens.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens that the provider had cached.
    pub cached_tokens: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Whether this too is only what was seen.
    pub partial: bool,
}

/// The id under which an operation is kept when another one has its `x-request-id` already.
pub fn renamed(operation_id: &str, boot_id: &str, sequence: i64) -> String {
    format!("{operation_id}~{boot_id}-{sequence}")
}

/// Whether a failed write is worth repeating.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, is busy or full. The same write may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The store will never take it.
    #[error("{0}")]
    Refused(String),
}

/// A process that writes, or wrote, to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Names the process.
    pub boot_id: Arc<str>,
    /// Names the installation that the process belongs to; it stays the same over restarts.
    pub instance: Arc<str>,
}

/// Another process that has not said that it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherBoot {
    /// Which.
    pub boot: Boot,
    /// Time since its last heartbeat, by the store's clock.
    pub silent: Duration,
}

/// What is known on this machine of a boot of the same installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootLock {
    /// Its lock is held: it runs.
    Held,
    /// Its lock is free: it ended, however.
    Free,
    /// It left no lock here.
    Unknown,
}

/// Silence after which a process of another installation counts as dead. Six heartbeats: a short outage of the store or of the
/// network between must not turn a living process's operations into abandoned ones.
pub const LEASE: Duration = Duration::from_secs(30);
/// Time between heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// Whether the pending rows of that process may be settled as abandoned (R-L6). A lock of this machine is proof either way; without
/// one only silence speaks.
pub fn is_dead(other: &OtherBoot, lock: BootLock) -> bool {
    match lock {
        BootLock::Held => false,
        BootLock::Free => true,
        BootLock::Unknown => other.silent > LEASE,
    }
}

/// A store as its one writer sees it. Calls block; they come from a thread that does nothing else.
pub trait Store: Send {
    /// Connects if need be, brings the tables to this version, and enters the boot. Repeated after a failure.
    fn open(&mut self, boot: &Boot) -> Result<(), StoreError>;
    /// Writes the pieces in one transaction. A terminal row is never changed. Gives the number of rows that were written.
    fn write(&mut self, pieces: &[Piece]) -> Result<u64, StoreError>;
    /// Renews the lease of the boot.
    fn beat(&mut self, boot: &Boot) -> Result<(), StoreError>;
    /// The other boots that have not ended.
    fn others(&mut self, boot: &Boot) -> Result<Vec<OtherBoot>, StoreError>;
    /// Settles at most `rows_max` pending rows of a dead boot as abandoned, attempts before operations. Gives how many; 0 when there
    /// are none, and the boot has then ended.
    fn abandon(&mut self, dead: &Boot, at: WallTime, rows_max: u32) -> Result<u64, StoreError>;
    /// What time it is by the clock that all have in common who write to the store; by this machine's, which is `here`, if it has none.
    fn clock(&mut self, here: WallTime) -> Result<WallTime, StoreError>;
    /// Deletes at most `operations_max` settled operations that began before, with their attempts. Gives how many.
    fn prune(&mut self, before: WallTime, operations_max: u32) -> Result<u64, StoreError>;
    /// Says that the boot ended in order.
    fn close(&mut self, boot: &Boot) -> Result<(), StoreError>;
}

/// Which records are asked for. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// At most so many.
    pub limit: usize,
    /// Of this route.
    pub route: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// With an attempt at this target.
    pub target: Option<String>,
    /// With this `x-request-id`; also those that were renamed.
    pub id: Option<String>,
    /// Begun at or after.
    pub since: Option<WallTime>,
    /// Older than this one: where the last page ended.
    pub before: Option<Cursor>,
}

/// A place in the list of records, which is ordered by start and id, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Start of the last record that was shown.
    pub started_at: WallTime,
    /// Its id.
    pub operation_id: String,
}

/// What sums are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SumBy {
    /// Operations by route.
    Route,
    /// Attempts by target.
    Target,
    /// Attempts by provider and key.
    Key,
    /// Operations by state.
    State,
}

/// Sums over one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sum {
    /// The group: a route, a target, `provider/key`, a state.
    pub group: String,
    /// Rows: operations, or attempts when grouped by target or key.
    pub rows: u64,
    /// Of these in each state, by the state's label, in the order of the labels; states without rows are absent.
    pub states: Vec<(String, u64)>,
    /// Sends.
    pub sends: u64,
    /// Sum of latencies of the rows that have one, in milliseconds.
    pub latency_ms: u64,
    /// Rows that have a latency.
    pub timed: u64,
    /// Prompt tokens. For targets and keys: of the operations that their attempt answered.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
    /// Cached prompt tokens.
    pub cached_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
}

/// A store as one who looks sees it. Calls block, so they do not belong on the data plane's threads.
pub trait Reader: Send + Sync {
    /// Records that fit, newest first.
    fn find(&self, query: &Query) -> Result<Vec<StoredRecord>, StoreError>;
    /// Sums over everything that began at or after `since`, by group, in the order of the groups.
    fn sums(&self, by: SumBy, since: Option<WallTime>) -> Result<Vec<Sum>, StoreError>;
}

impl LateUsage {
    /// The record with this usage instead of what is missing or partial in it; `None` if its usage is final.
    pub fn applied(&self, record: &Record) -> Option<Record> {
        if record.operation.usage_partial == Some(false) {
            return None;
        }
        let mut record = record.clone();
        record.operation.set_usage(Some(Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.cached_tokens,
            reasoning_tokens: self.reasoning_tokens,
            partial: self.partial,
        }));
        Some(record)
    }

    /// The values of the five usage columns, in the order in which [`super::columns::OPERATIONS`] has them.
    pub fn values(&self) -> [Value<'static>; 5] {
        let count = |number: Option<u64>| {
            number.map_or(Value::Null, |n| {
                Value::Number(i64::try_from(n).unwrap_or(i64::MAX))
            })
        };
        [
            count(self.prompt_tokens),
            count(self.completion_tokens),
            count(self.cached_tokens),
            count(self.reasoning_tokens),
            Value::Flag(self.partial),
        ]
    }
}
