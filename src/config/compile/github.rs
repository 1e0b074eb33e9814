//! What only Copilot has: `copilot`, a lasting token that is exchanged for short ones, and headers that name the caller.
//!
//! Not here: tokens themselves. The host that an exchange names beside the token is not followed: where a provider is, the configuration says.

use std::sync::Arc;

use super::Compiler;
use super::identity::Found;
use crate::config::address::{is_loopback_host, parse_base_url};
use crate::config::defaults;
use crate::config::reader::Map;
use crate::policy::identity::{Exchange, Grant, Identity};
use crate::policy::provider::OwnHeader;

pub(super) const COPILOT: &str = "copilot";
const HEADER_BYTES_MAX: usize = 128;
/// What every request carries, by the key that says it.
const HEADERS: [(&str, &str); 4] = [
    ("editor_version", "editor-version"),
    ("integration_id", "copilot-integration-id"),
    ("intent", "openai-intent"),
    ("api_version", "x-github-api-version"),
];

impl Compiler<'_> {
    /// The headers that every request carries; `None` where one was refused.
    pub(super) fn own_headers(
        &mut self,
        map: &Map<'_>,
        adapter: Option<&'static str>,
    ) -> Option<Vec<OwnHeader>> {
        if adapter != Some(COPILOT) {
            return Some(Vec::new());
        }
        let copilot = map.map("copilot");
        let headers = HEADERS.map(|(key, name)| {
            let value = self.header_text(&copilot, key)?;
            Some(OwnHeader { name, value })
        });
        headers.into_iter().collect()
    }

    fn header_text(&mut self, map: &Map<'_>, key: &str) -> Option<Arc<str>> {
        let text = map.text(key)?;
        let fits = text.len() <= HEADER_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            let message = format!(
                "not usable in a header; needed are up to {HEADER_BYTES_MAX} visible ASCII characters"
            );
            self.report.refuse(&map.at(key), message);
        }
        fits.then(|| text.into())
    }

    pub(super) fn copilot(&mut self, map: &Map<'_>, copilot: &Map<'_>) -> Option<Found> {
        let url = copilot
            .text("token_url")
            .unwrap_or(defaults::COPILOT_TOKEN_URL);
        let endpoint = parse_base_url(url).ok();
        if !copilot.has("token") {
            return Some(Found::keys());
        }
        if !map.maps("keys").is_empty() {
            let message = "`keys` are short-lived tokens, sent as they are; remove them or this one, which is exchanged";
            self.report.refuse(&copilot.at("token"), message);
            return None;
        }
        let token = self.secret_of(copilot, "token");
        let endpoint = endpoint?;
        if !endpoint.tls && !is_loopback_host(&endpoint.host) {
            let message = "not https; what is sent there is worth an account";
            self.report.refuse(&copilot.at("token_url"), message);
            return None;
        }
        let editor_version = copilot.text("editor_version")?.into();
        let grant = Grant::Copilot {
            token: token?,
            editor_version,
        };
        Some(Found::of(Identity::Exchanged(Exchange { endpoint, grant })))
    }
}
