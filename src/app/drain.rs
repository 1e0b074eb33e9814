//! The end of the process: leaves as soon as nothing is in flight. Pingora alone would sleep through the whole grace period.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use tokio::time::{Instant, sleep};

use super::App;

/// How often the number of requests in flight is looked at. A request that ends is noticed this much later; nobody waits for it but the exit.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time for the last bytes of answers to leave the process's connections after the last request has ended.
const LAST_BYTES: Duration = Duration::from_millis(50);

/// Waits for the drain and ends the process.
pub(super) struct Drain {
    app: Arc<App>,
    grace: Duration,
}

impl Drain {
    pub(super) fn new(app: Arc<App>, grace: Duration) -> Drain {
        Drain { app, grace }
    }
}

#[async_trait]
impl BackgroundService for Drain {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let lifecycle = self.app.gateway.around.lifecycle.clone();
        tokio::select! {
            () = lifecycle.drain_begun() => {}
            _ = shutdown.wait_for(|stop| *stop) => lifecycle.begin_drain(),
        }
        let ends = Instant::now() + self.grace;
        let inflight = &self.app.gateway.around.inflight;
        // Listeners are closed by Pingora when it announces the shutdown; only then can the number not rise again.
        let _ = shutdown.wait_for(|stop| *stop).await;
        while inflight.count() > 0 && Instant::now() < ends {
            sleep(LOOK_EVERY).await;
        }
        let left = inflight.count();
        if left > 0 {
            log::warn!(
                "drain: {left} requests did not end in {:?}; they are cut",
                self.grace
            );
        }
        // What is left would be dropped in the middle of the exit, or not at all.
        inflight.settle_all();
        sleep(LAST_BYTES).await;
        let app = Arc::clone(&self.app);
        let _ = tokio::task::spawn_blocking(move || app.finish_records()).await;
        log::info!("drained");
        std::process::exit(0);
    }
}
