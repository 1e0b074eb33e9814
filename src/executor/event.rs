//! What the shell tells the executor.

use crate::core::outcome::AttemptReport;

/// Something that happened to the operation.
#[derive(Debug, Clone)]
pub enum Event {
    /// The request was read and the operation begins.
    Admitted,
    /// The dispatch point of the current attempt: the next step would be to send.
    SendBegun,
    /// The current attempt has ended, or is ready to be delivered. Its request and response are finished or held.
    Outcome(AttemptReport),
    /// The instant of the wait was reached.
    WaitElapsed,
    /// The client has left.
    ClientGone,
    /// The gateway began to drain.
    ShutdownBegun,
    /// The operation's deadline was reached.
    DeadlinePassed,
    /// The response header was written to the client.
    Committed,
    /// What was being delivered or answered has ended.
    StreamEnded(StreamEnd),
    /// The shell dropped the operation without another word.
    Dropped,
}

impl Event {
    /// A name for logs and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Event::Admitted => "admitted",
            Event::SendBegun => "send_begun",
            Event::Outcome(_) => "outcome",
            Event::WaitElapsed => "wait_elapsed",
            Event::ClientGone => "client_gone",
            Event::ShutdownBegun => "shutdown_begun",
            Event::DeadlinePassed => "deadline_passed",
            Event::Committed => "committed",
            Event::StreamEnded(_) => "stream_ended",
            Event::Dropped => "dropped",
        }
    }
}

/// How the writing of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// All of it was written.
    Complete,
    /// The upstream broke off after the header was written.
    UpstreamBroke,
    /// The upstream was silent or slow beyond its limits.
    UpstreamTimedOut,
    /// The client left.
    ClientGone,
}
