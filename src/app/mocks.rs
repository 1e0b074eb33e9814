//! The scripted providers that are embedded in this process, one for each provider with a `mock`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::StartError;
use crate::mock::{MockServer, Recorder, Script, Setup, bind};
use crate::policy::provider::Provider;
use crate::policy::snapshot::Snapshot;

/// Running scripts by provider name. One whose text changes gets the new script and keeps its address.
pub(super) struct Mocks {
    runtime: Handle,
    running: Mutex<HashMap<Arc<str>, Running>>,
}

struct Running {
    server: MockServer,
    text: Arc<str>,
}

impl Mocks {
    pub(super) fn new(runtime: Handle) -> Mocks {
        Mocks {
            runtime,
            running: Mutex::default(),
        }
    }

    /// Starts what the snapshot embeds and is not running. What it no longer embeds goes on: operations in flight may use it.
    pub(super) fn start_all(&self, snapshot: &Snapshot) -> Result<(), StartError> {
        for provider in &snapshot.providers {
            let Some(source) = &provider.mock else {
                continue;
            };
            self.start(provider, &source.text)
                .map_err(|source| StartError::Mock {
                    name: provider.name.to_string(),
                    source,
                })?;
        }
        Ok(())
    }

    fn start(&self, provider: &Provider, text: &Arc<str>) -> std::io::Result<()> {
        let script = Script::parse(text).map_err(std::io::Error::other)?;
        let mut running = self.running.lock();
        if let Some(known) = running.get_mut(&provider.name) {
            if known.text != *text {
                known.server.set_script(script);
                known.text = Arc::clone(text);
            }
            return Ok(());
        }
        let listener = {
            let _runtime = self.runtime.enter();
            bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?
        };
        let server = MockServer::start_in(
            &self.runtime,
            &provider.name,
            script,
            listener,
            Setup::default(),
        )?;
        log::info!("provider {}: scripted, at {}", provider.name, server.addr());
        let name = Arc::clone(&provider.name);
        running.insert(
            name,
            Running {
                server,
                text: Arc::clone(text),
            },
        );
        Ok(())
    }

    pub(super) fn address(&self, provider: &Provider) -> Option<SocketAddr> {
        self.running
            .lock()
            .get(&provider.name)
            .map(|running| running.server.addr())
    }

    pub(super) fn recorder(&self, provider: &str) -> Option<Recorder> {
        self.running
            .lock()
            .get(provider)
            .map(|running| running.server.recorder().clone())
    }
}
