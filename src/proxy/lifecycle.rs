//! Whether the process is draining, and whether another takes its place. Waiting operations watch it; dispatch points read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Flags that rise once.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    draining: watch::Sender<bool>,
    handed_over: Arc<AtomicBool>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle {
            draining: watch::Sender::new(false),
            handed_over: Arc::default(),
        }
    }
}

impl Lifecycle {
    /// Begins the drain. Everyone who waits is told at once.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
    }

    /// The listeners go to another process. Said before the drain begins.
    pub fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Release);
    }

    /// Whether another process has the listeners.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Returns when the drain has begun.
    pub async fn drain_begun(&self) {
        let mut watch = self.draining.subscribe();
        // The sender lives as long as this value, so the only way out is the flag.
        let _ = watch.wait_for(|draining| *draining).await;
    }
}
