//! What the configuration compiler asks about adapters and scripts, answered by who knows both.
//!
//! Not here: adapters ([`crate::providers`]) and scripts ([`super::script`]) themselves. It has no state: two of it are one.

use crate::config::AdapterCatalog;
use crate::core::api::ApiSet;
use crate::providers::registry;

use super::script::Script;

/// The adapters and the script reader of this build.
#[derive(Debug, Clone, Copy, Default)]
pub struct Catalog;

impl AdapterCatalog for Catalog {
    fn find(&self, name: &str) -> Option<(&'static str, ApiSet)> {
        registry::find(name).map(|adapter| (adapter.name, adapter.speaks))
    }

    fn names(&self) -> Vec<&'static str> {
        registry::all().iter().map(|adapter| adapter.name).collect()
    }

    fn default_base_url(&self, name: &str) -> Option<&'static str> {
        registry::find(name)?.default_base_url
    }

    fn check_mock(&self, script: &str) -> Result<(), String> {
        Script::parse(script)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }
}
