//! What an upstream's answer says went wrong, independent of whose dialect said it.

use std::fmt;

/// The class of an answer. The labels are those of `rondo classify`, records and the answer corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A rate limit that passes by itself.
    Throttle,
    /// The provider lacks capacity for the moment.
    Overload,
    /// A quota, spend limit or balance that waiting does not clear.
    QuotaHard,
    /// A failure inside the provider.
    ServerError,
    /// The request, model, region or account set-up is wrong.
    Config,
    /// The prompt is larger than the model takes.
    ContextOverflow,
    /// A policy of the provider refused the content.
    ContentPolicy,
    /// The credential is missing, wrong or not allowed.
    Auth,
    /// The provider, or something before it, ran out of time.
    Timeout,
    /// The answer breaks its own format.
    Malformed,
    /// An error whose cause cannot be told.
    Ambiguous,
    /// No connection, a broken connection: no answer at all.
    Transport,
    /// A stream that began well.
    OkStream,
    /// A good answer.
    Ok,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 14] = [
        Class::Throttle,
        Class::Overload,
        Class::QuotaHard,
        Class::ServerError,
        Class::Config,
        Class::ContextOverflow,
        Class::ContentPolicy,
        Class::Auth,
        Class::Timeout,
        Class::Malformed,
        Class::Ambiguous,
        Class::Transport,
        Class::OkStream,
        Class::Ok,
    ];

    /// The label used in records, logs and `rondo classify`.
    pub const fn label(self) -> &'static str {
        match self {
            Class::Throttle => "throttle",
            Class::Overload => "overload",
            Class::QuotaHard => "quota_hard",
            Class::ServerError => "server_error",
            Class::Config => "config",
            Class::ContextOverflow => "context_overflow",
            Class::ContentPolicy => "content_policy",
            Class::Auth => "auth",
            Class::Timeout => "timeout",
            Class::Malformed => "malformed",
            Class::Ambiguous => "ambiguous",
            Class::Transport => "transport",
            Class::OkStream => "ok_stream",
            Class::Ok => "ok",
        }
    }

    /// Throttle and overload are the two classes that a certificate can carry and that a second round is for.
    pub const fn is_pushback(self) -> bool {
        matches!(self, Class::Throttle | Class::Overload)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
