//! The state machine of one operation: events in, effects out.
//!
//! ```text
//!            Admitted            SendBegun                Outcome
//!   New ───────────────▶ Selected ────────▶ Sending ─────────────────┐
//!                           ▲   Begin         Send                   │
//!                           │                                        ▼
//!                           │  next target, next key, same key   decide()
//!                           ├──────────────────────────────────────┤
//!                           │       WaitElapsed                    │ own retry
//!                           ├───────────────────────────────── Pausing
//!                           │                                      │ round over, second round permitted
//!                           │       WaitElapsed                    ▼
//!                           └───────────────────────────────── Waiting
//!                                                                  │ accepted          │ anything else
//!                                                                  ▼                   ▼
//!                                                             Delivering            Passing
//!                                                                  └── StreamEnded ────┴──▶ Ended
//! ```
//! From every state, `ClientGone`, `DeadlinePassed` and `Dropped` lead to the end; `ShutdownBegun` ends a wait and forbids further sends
//! after the first. A cancel that comes when an instant had passed finds what the timer of that instant leaves ([`watchdog`]). Invariants: no send without [`effect::Next::Send`]; every attempt that is opened is settled once; the operation is
//! settled once; nothing that ended comes back. Not here: clocks, sockets, counting, any knowledge of a provider.

mod conclude;
pub mod effect;
pub mod event;
pub mod guard;
mod hold;
mod interrupts;
mod machine;
mod open_send;
mod outcome;
pub mod plan;
mod provider_retry;
mod round;
mod scopes;
mod state;
pub mod watchdog;

pub use machine::Executor;
