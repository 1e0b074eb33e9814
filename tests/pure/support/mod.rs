//! Builders and the one driver that obeys the executor's effects, shared by every test of the core.

pub mod check;
pub mod driver;
pub mod ordered;
pub mod reports;
pub mod spec;

use std::time::Duration;

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
