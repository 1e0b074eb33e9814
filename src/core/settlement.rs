//! The one terminal state of an operation or an attempt.

/// The `state` column of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Owned, not ended.
    Pending,
    /// Answered well.
    Succeeded,
    /// The provider certified that it did not run.
    Rejected,
    /// A complete error answer without a certificate, or a refusal by the gateway.
    Refused,
    /// It ended without an answer and nothing had been sent, or a committed answer broke off.
    Failed,
    /// It may have run.
    Ambiguous,
    /// The client left.
    Cancelled,
    /// A timeout or the deadline ended it.
    TimedOut,
    /// The process ended first.
    Abandoned,
}

impl State {
    /// The label used in records and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Succeeded => "succeeded",
            State::Rejected => "rejected",
            State::Refused => "refused",
            State::Failed => "failed",
            State::Ambiguous => "ambiguous",
            State::Cancelled => "cancelled",
            State::TimedOut => "timed_out",
            State::Abandoned => "abandoned",
        }
    }
}

/// The `outcome` label of `rondo_requests_total`: how an operation ended, from the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationOutcome {
    /// A target answered and the answer was passed on whole.
    Succeeded,
    /// A target's own error was passed on.
    UpstreamError,
    /// Every target rejected: the final 429.
    Exhausted,
    /// The gateway refused the request itself (unknown model, too large, no capacity).
    Rejected,
    /// No target could be reached, or a committed answer broke off.
    Failed,
    /// The client left first.
    Cancelled,
    /// A timeout or the deadline ended it.
    TimedOut,
}

impl OperationOutcome {
    /// Every outcome.
    pub const ALL: [OperationOutcome; 7] = [
        OperationOutcome::Succeeded,
        OperationOutcome::UpstreamError,
        OperationOutcome::Exhausted,
        OperationOutcome::Rejected,
        OperationOutcome::Failed,
        OperationOutcome::Cancelled,
        OperationOutcome::TimedOut,
    ];

    /// The label used in metrics and the access log.
    pub const fn label(self) -> &'static str {
        match self {
            OperationOutcome::Succeeded => "succeeded",
            OperationOutcome::UpstreamError => "upstream_error",
            OperationOutcome::Exhausted => "exhausted",
            OperationOutcome::Rejected => "rejected",
            OperationOutcome::Failed => "failed",
            OperationOutcome::Cancelled => "cancelled",
            OperationOutcome::TimedOut => "timed_out",
        }
    }
}
