//! Which failures beyond the replay-safe ones may move on to another target.

/// `routing.fallback_strategy` and `routing.fallback_http_statuses`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fallback {
    /// Uncertified throttle and overload answers move on.
    pub http_429: bool,
    /// Complete 5xx answers and other in-stream errors before output move on.
    pub http_5xx: bool,
    /// Ambiguous failures before any output move on.
    pub transport_error: bool,
    /// Locally exhausted limits skip a target.
    pub rate_limiting: bool,
    /// Single statuses (400..=599), sorted.
    pub statuses: Vec<u16>,
}
