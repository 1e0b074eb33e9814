//! How much of an answer the client has been given. It only rises.

/// `Open < Headers < Output`. No attempt starts once it has left `Open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Commitment {
    /// Nothing was written to the client.
    #[default]
    Open,
    /// The response header was written.
    Headers,
    /// Body bytes were written.
    Output,
}

impl Commitment {
    /// Raises to `to`; a lower value changes nothing.
    pub fn raise(&mut self, to: Commitment) {
        *self = (*self).max(to);
    }
}
