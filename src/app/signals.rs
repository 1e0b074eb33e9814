//! Signals. SIGHUP reloads; SIGTERM drains; SIGINT stops at once; SIGQUIT hands the listeners to a new process.

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::runtime::Runtime;
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

/// The handlers of every signal that the process knows. Installed first thing: until then each of them ends the process, and a reload
/// that is asked for while the configuration is read would end it too.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// Installs the handlers. What comes from now on is kept until it is asked for.
    pub fn install(runtime: &Runtime) -> std::io::Result<Signals> {
        let _runtime = runtime.enter();
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Those that reload, and those that stop.
    pub(super) fn split(self, lifecycle: Lifecycle) -> (Signal, StopSignals) {
        let stop = StopSignals {
            lifecycle,
            terminate: Mutex::new(self.terminate),
            interrupt: Mutex::new(self.interrupt),
            quit: Mutex::new(self.quit),
        };
        (self.hangup, stop)
    }
}

/// Tells Pingora to stop, and everyone who waits to end the wait first.
pub(super) struct StopSignals {
    lifecycle: Lifecycle,
    terminate: Mutex<Signal>,
    interrupt: Mutex<Signal>,
    quit: Mutex<Signal>,
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
