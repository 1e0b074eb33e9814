//! How an attempt waits until its pending record is on disk (`durability: strict`).
//!
//! The one who sends asks for a number, wakes the collector and waits until that number is confirmed. Invariant: a number is confirmed only
//! by a collection that began after it was asked for, so the record that was changed before is in it, or was lost and counted. The wait
//! is bounded and its end is permission either way (R-L7): the store never fails a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::counts::Counts;

/// How long a send waits for its record at most. A disk syncs in milliseconds; one that needs a second is broken, and the client waits.
pub const STRICT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Wakes the collector.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Returns when it rings, or when the time is over.
    pub(super) fn wait(&self, time: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, time, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        let mut rung = waited.0;
        *rung = false;
    }
}

/// The last number that is done, and whether all went well that came up to it.
#[derive(Debug, Clone, Copy)]
struct Done {
    through: u64,
    on_disk: bool,
}

/// Where sends wait.
#[derive(Debug)]
pub struct Strict {
    asked: AtomicU64,
    bell: Arc<Bell>,
    done: watch::Sender<Done>,
    counts: Arc<Counts>,
}

impl Strict {
    pub(super) fn new(bell: Arc<Bell>, counts: Arc<Counts>) -> Strict {
        Strict {
            asked: AtomicU64::new(0),
            bell,
            done: watch::Sender::new(Done {
                through: 0,
                on_disk: true,
            }),
            counts,
        }
    }

    /// Returns when everything that was recorded up to now is on disk, or when it is not worth waiting any longer; that is counted.
    pub async fn confirm(&self, deadline: Instant) {
        // Before the number is drawn, so that no confirmation of it is missed.
        let mut done = self.done.subscribe();
        let number = self.asked.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        self.bell.ring();
        let ends = deadline.min(Instant::now() + STRICT_WAIT_MAX);
        let confirmed = timeout_at(ends, done.wait_for(|done| done.through >= number)).await;
        let on_disk = matches!(&confirmed, Ok(Ok(done)) if done.on_disk);
        if !on_disk {
            self.counts.not_confirmed();
        }
    }

    /// The last number that was asked for. Read before a collection.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Everything up to this number was collected, and is on disk or will not be.
    pub(super) fn publish(&self, through: u64, on_disk: bool) {
        self.done.send_if_modified(|done| {
            let is_new = through > done.through;
            if is_new {
                *done = Done { through, on_disk };
            }
            is_new
        });
    }
}
