//! Waits that end by themselves: the executor knows of each before it begins (R-L4).
//!
//! An attempt's future is dropped when the client leaves. The limit then stays set in the open send, and the executor can tell a
//! cancel from one that comes too late. A wait that is over takes its limit away; one that ran out keeps it until it was reported.

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::executor::watchdog::Reached;
use crate::proxy::operation::OperationCell;

/// Waits until `due` at most.
pub(super) async fn within<T>(
    cell: &OperationCell,
    due: Instant,
    reached: Reached,
    wait: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    cell.watch(Some((due.into_std(), reached)));
    let waited = timeout_at(due, wait).await;
    if waited.is_ok() {
        cell.watch(None);
    }
    waited
}
