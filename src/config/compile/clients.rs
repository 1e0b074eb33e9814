//! `client_keys`: who the gateway's own clients are.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::Rng;

use super::Compiler;
use crate::config::reader::Map;
use crate::config::secret;
use crate::policy::affinity::Affinity;
use crate::policy::clients::ClientKeys;

impl Compiler<'_> {
    pub(super) fn clients(&mut self, map: &Map<'_>) -> ClientKeys {
        let mut names = BTreeSet::new();
        let (mut keys, mut limits) = (Vec::new(), Vec::new());
        let common = map.number("max_in_flight");
        for item in map.maps("keys") {
            let name = item.text("name").unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                let message = format!("{name} is the name of two client keys; names are unique");
                self.report.refuse(&item.at("name"), message);
            }
            let source = item.given_map("secret");
            if let Some(secret) = source.and_then(|source| secret::resolve(self, &source)) {
                let limit = item.given_number("max_in_flight").unwrap_or(common);
                keys.push((Arc::from(name), secret));
                limits.push(Some(limit).filter(|limit| *limit > 0));
            }
        }
        let required = map.flag("required") == Some(true);
        if required && map.maps("keys").is_empty() {
            let message =
                "no key is given, so every client is refused; add one to client_keys.keys";
            self.report.warn(&map.at("required"), message);
        }
        let salt = self.previous.map(|previous| previous.clients.salt());
        let known = keys.iter();
        let known = known.map(|(name, secret)| (Arc::clone(name), secret.expose().as_bytes()));
        ClientKeys::new(
            required,
            salt.unwrap_or_else(|| rand::rng().random()),
            known,
        )
        .limited(
            limits.into_iter(),
            self.previous.map(|previous| &previous.clients),
        )
    }

    /// The table of the process: a reload keeps it.
    pub(super) fn affinity(&self) -> Arc<Affinity> {
        match self.previous {
            Some(previous) => Arc::clone(&previous.affinity),
            None => Arc::new(Affinity::new(rand::rng().random())),
        }
    }
}
