//! Signals. SIGHUP reloads; SIGTERM drains; SIGINT stops at once; SIGQUIT hands the listeners to a new process.

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

use super::App;
use crate::proxy::lifecycle::Lifecycle;

/// Reloads at every SIGHUP, for ever. Signals that come during a reload make one more afterwards.
pub(super) async fn reload_on_hangup(app: Arc<App>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        log::info!("SIGHUP: reloading the configuration");
        app.reload().await;
    }
}

/// The handler of SIGHUP. Installed first thing: without one the signal ends the process.
pub(super) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Tells Pingora to stop, and everyone who waits to end the wait first.
pub(super) struct StopSignals {
    lifecycle: Lifecycle,
    terminate: Mutex<Signal>,
    interrupt: Mutex<Signal>,
    quit: Mutex<Signal>,
}

impl StopSignals {
    pub(super) fn install(lifecycle: Lifecycle) -> std::io::Result<StopSignals> {
        Ok(StopSignals {
            lifecycle,
            terminate: Mutex::new(signal(SignalKind::terminate())?),
            interrupt: Mutex::new(signal(SignalKind::interrupt())?),
            quit: Mutex::new(signal(SignalKind::quit())?),
        })
    }
}

#[async_trait]
impl ShutdownSignalWatch for StopSignals {
    async fn recv(&self) -> ShutdownSignal {
        let (mut terminate, mut interrupt, mut quit) = tokio::join!(
            self.terminate.lock(),
            self.interrupt.lock(),
            self.quit.lock()
        );
        let stop = tokio::select! {
            _ = terminate.recv() => ShutdownSignal::GracefulTerminate,
            _ = interrupt.recv() => ShutdownSignal::FastShutdown,
            _ = quit.recv() => ShutdownSignal::GracefulUpgrade,
        };
        if matches!(stop, ShutdownSignal::GracefulUpgrade) {
            // Both processes accept for some seconds; this one serves as ever until Pingora closes its listeners, and drains then.
            self.lifecycle.hand_over();
            log::info!("handing the listeners to a new process");
        } else {
            self.lifecycle.begin_drain();
            log::info!("draining: no new connections; operations in flight may finish");
        }
        stop
    }
}
