//! The rows of the tables `operations` and `attempts`, column by column. Plain values: no clock, no store.

use std::sync::Arc;

use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::decision::{Decision, Round};
use crate::core::settlement::State;
use crate::core::time::{MonoTime, WallTime};
use crate::core::usage::Usage;

/// One moment on both clocks, as the shell stamped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For differences.
    pub mono: MonoTime,
    /// For records.
    pub wall: WallTime,
}

/// How much of a body passed through the gateway. Bodies themselves are never kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capture {
    /// Nothing of it.
    Absent,
    /// Its beginning.
    Partial,
    /// All of it.
    Complete,
}

impl Capture {
    /// The value of the `request_capture` and `response_capture` columns.
    pub const fn label(self) -> &'static str {
        match self {
            Capture::Absent => "absent",
            Capture::Partial => "partial",
            Capture::Complete => "complete",
        }
    }
}

/// Whether a row in this state may still be written to: a terminal state is written once, and a pending row that arrives late never
/// undoes it (R-L1).
pub const fn may_overwrite(stored: State) -> bool {
    matches!(stored, State::Pending)
}

/// A row of `operations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationEntry {
    /// `x-request-id`. A client may use one twice.
    pub operation_id: Arc<str>,
    /// The process that served it; tells a crash from a slow operation (R-L6).
    pub boot_id: Arc<str>,
    /// Name of the route.
    pub route: Arc<str>,
    /// The client's API format.
    pub api: Api,
    /// The model name that the client gave.
    pub public_model: Arc<str>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// Where it stands.
    pub state: State,
    /// HTTP status that was written; 499 when the client left before it had the whole answer.
    pub http_status: Option<u16>,
    /// Class of the failure that the client was told about; `None` when there was none.
    pub error_class: Option<Class>,
    /// Why it ended so; empty for a plain success and while it is pending.
    pub reason: &'static str,
    /// The client's own key, by name; `None` for one that is not configured.
    pub client_key: Option<Arc<str>>,
    /// When the request header was complete.
    pub started_at: WallTime,
    /// When the first byte of the answer was written.
    pub first_byte_at: Option<WallTime>,
    /// When it ended.
    pub finished_at: Option<WallTime>,
    /// From start to end, on the monotonic clock.
    pub latency_ms: Option<u64>,
    /// Time slept between rounds.
    pub wait_ms: u64,
    /// Sends used.
    pub sends: u32,
    /// Rounds entered.
    pub rounds: u8,
    /// Bytes of the request body.
    pub request_bytes: u64,
    /// Bytes of the response body that were written.
    pub response_bytes: u64,
    /// How much of the request body was read.
    pub request_capture: Capture,
    /// How much of the response body was passed on.
    pub response_capture: Capture,
    /// Usage: the whole prompt, cached reads and cache writes included.
    pub prompt_tokens: Option<u64>,
    /// Usage: the whole output, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Usage: the part of the prompt that the provider had cached.
    pub cached_tokens: Option<u64>,
    /// Usage: the part of the output that was reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Whether the usage is what was seen of an answer that was not read to its end; `None` without usage.
    pub usage_partial: Option<bool>,
    /// The profile of its route.
    pub profile: Arc<str>,
}

impl OperationEntry {
    /// Writes the usage columns, all of them.
    pub fn set_usage(&mut self, usage: Option<Usage>) {
        let counts = usage.unwrap_or_default();
        self.prompt_tokens = counts.prompt_tokens;
        self.completion_tokens = counts.completion_tokens;
        self.cached_tokens = counts.cached_tokens;
        self.reasoning_tokens = counts.reasoning_tokens;
        self.usage_partial = usage.map(|usage| usage.partial);
    }
}

/// A row of `attempts`. Its key is (`operation_id`, `attempt_no`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEntry {
    /// The operation it belongs to.
    pub operation_id: Arc<str>,
    /// Counts from 1 over the operation.
    pub attempt_no: u32,
    /// The pass it belongs to.
    pub round: Round,
    /// Position of the candidate in the plan.
    pub candidate_index: usize,
    /// 0, and one more for each derived try on the same key (R-K3).
    pub retry_index: u32,
    /// Name of the target.
    pub target: Arc<str>,
    /// Name of the provider.
    pub provider: Arc<str>,
    /// Name of the key; `None` for providers without authentication.
    pub key_name: Option<Arc<str>>,
    /// The model name that the target was asked for.
    pub upstream_model: Arc<str>,
    /// Where it stands.
    pub state: State,
    /// The delivery class; `None` while it is pending.
    pub delivery: Option<&'static str>,
    /// What the answer said; `None` when there was no answer to read.
    pub class: Option<Class>,
    /// Whether the provider proved that it did not run the request.
    pub certified: bool,
    /// What followed; `None` while it is pending.
    pub decision: Option<Decision>,
    /// HTTP status that stands for the answer.
    pub http_status: Option<u16>,
    /// Class of the failure; `None` for a success and for a cancel.
    pub error_class: Option<Class>,
    /// The provider's own id of the request.
    pub upstream_request_id: Option<Arc<str>>,
    /// The provider's delay directive.
    pub retry_after_ms: Option<u64>,
    /// When it was owned.
    pub started_at: WallTime,
    /// When the response header arrived.
    pub first_byte_at: Option<WallTime>,
    /// When it was settled.
    pub finished_at: Option<WallTime>,
    /// From start to settlement, on the monotonic clock.
    pub latency_ms: Option<u64>,
}

impl AttemptEntry {
    /// Whether a request may have left for the upstream: every delivery but `not_delivered`.
    pub fn may_have_arrived(&self) -> bool {
        self.delivery
            .is_some_and(|delivery| delivery != "not_delivered")
    }
}

/// An operation's row with the rows of its attempts, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Counts from 1 over the process, in the order in which operations began.
    pub sequence: u64,
    /// The operation.
    pub operation: OperationEntry,
    /// Its attempts, by `attempt_no`.
    pub attempts: Vec<AttemptEntry>,
    /// Name of the target whose answer the client was given.
    pub delivered_by: Option<Arc<str>>,
}
