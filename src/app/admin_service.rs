//! The admin plane as a service that outlives the data plane: during a drain it still answers, `/readyz` with 503.
//!
//! Pingora 0.9.1 closes every listener as soon as a shutdown begins, so the announcement is kept from this one. Only when the listeners
//! were handed to a new process does it stop accepting, since the new one answers then.

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use pingora_core::services::listening;
use tokio::sync::watch;

use super::App;
use crate::admin::Admin;
use crate::proxy::lifecycle::Lifecycle;

/// The admin plane until the process ends.
pub(super) struct AdminService {
    inner: listening::Service<Admin>,
    lifecycle: Lifecycle,
}

impl AdminService {
    pub(super) fn new(app: &Arc<App>, address: &str) -> AdminService {
        let mut inner = Admin::service(Arc::clone(app) as _);
        inner.add_tcp(address);
        AdminService {
            inner,
            lifecycle: app.gateway.around.lifecycle.clone(),
        }
    }
}

#[async_trait]
impl Service for AdminService {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        mut shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let (stop, stopped) = watch::channel(false);
        let lifecycle = self.lifecycle.clone();
        let pass_on = async {
            let _ = shutdown.wait_for(|stop| *stop).await;
            if lifecycle.is_handed_over() {
                stop.send_replace(true);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.inner.start_service(fds, stopped, listeners_per_fd) => {}
            () = pass_on => {}
        }
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.inner.listen_addresses()
    }
}
