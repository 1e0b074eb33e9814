//! Whether the process is draining. Waiting operations watch it; dispatch points read it.

use tokio::sync::watch;

/// A flag that rises once.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    draining: watch::Sender<bool>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle {
            draining: watch::Sender::new(false),
        }
    }
}

impl Lifecycle {
    /// Begins the drain. Everyone who waits is told at once.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
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
