//! Why there is no second round. A closed set: one variant is one metric label, one row in the docs and one test.

/// The reason that suppressed the exhaustion round (R-S11). Exactly one is given; [`Suppression::ALL`] is in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suppression {
    /// Something was already written to the client.
    Committed,
    /// Output, reasoning or tool activity was seen.
    OutputSeen,
    /// The client has left.
    ClientGone,
    /// The gateway is draining.
    Shutdown,
    /// An attempt of the round may have run.
    Ambiguous,
    /// An answer of the round broke its own format.
    Malformed,
    /// An answer of the round named a quota that waiting does not clear.
    HardQuota,
    /// An answer of the round blamed the credential or the configuration.
    AuthConfig,
    /// Some attempt of the round was not a certified throttle or overload.
    NotThrottled,
    /// The operation is bound to provider state.
    StateBound,
    /// The last attempt failed later than `retry_on_failure_within_ms`.
    SlowFailure,
    /// The client said that this request is already its own retry.
    CallerRetry,
    /// An attempt's request, response or tasks were not finished.
    Cleanup,
    /// No send is left.
    SendBudget,
    /// The route's retry budget is used up.
    RetryBudget,
    /// A locally exhausted target ended the round, since the route does not skip such.
    LocalLimit,
    /// The provider's delay is longer than `max_wait_ms`.
    WaitTooLong,
    /// The wait would end later than `max_failover_elapsed_ms` after the operation's start.
    FailoverElapsed,
    /// The wait and a minimum attempt do not fit the deadline.
    Deadline,
    /// The route's waiting slots or bytes are taken.
    AdmissionFull,
}

impl Suppression {
    /// Every reason, in the order of evaluation: the first that holds is the one given.
    pub const ALL: [Suppression; 20] = [
        Suppression::Committed,
        Suppression::OutputSeen,
        Suppression::ClientGone,
        Suppression::Shutdown,
        Suppression::Ambiguous,
        Suppression::Malformed,
        Suppression::HardQuota,
        Suppression::AuthConfig,
        Suppression::NotThrottled,
        Suppression::StateBound,
        Suppression::SlowFailure,
        Suppression::CallerRetry,
        Suppression::Cleanup,
        Suppression::SendBudget,
        Suppression::RetryBudget,
        Suppression::LocalLimit,
        Suppression::WaitTooLong,
        Suppression::FailoverElapsed,
        Suppression::Deadline,
        Suppression::AdmissionFull,
    ];

    /// The label used in metrics, records and `x-rondo-reason`.
    pub const fn label(self) -> &'static str {
        match self {
            Suppression::Committed => "committed",
            Suppression::OutputSeen => "output_seen",
            Suppression::ClientGone => "client_gone",
            Suppression::Shutdown => "shutdown",
            Suppression::Ambiguous => "ambiguous",
            Suppression::Malformed => "malformed",
            Suppression::HardQuota => "hard_quota",
            Suppression::AuthConfig => "auth_config",
            Suppression::NotThrottled => "not_throttled",
            Suppression::StateBound => "state_bound",
            Suppression::SlowFailure => "slow_failure",
            Suppression::CallerRetry => "caller_retry",
            Suppression::Cleanup => "cleanup",
            Suppression::SendBudget => "send_budget",
            Suppression::RetryBudget => "retry_budget",
            Suppression::LocalLimit => "local_limit",
            Suppression::WaitTooLong => "wait_too_long",
            Suppression::FailoverElapsed => "failover_elapsed",
            Suppression::Deadline => "deadline",
            Suppression::AdmissionFull => "admission_full",
        }
    }
}
