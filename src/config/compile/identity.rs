//! What stands in for keys: which of `aws`, `gcp` and `copilot` it is, and what they have in common.
//!
//! Not here: each of them ([`super::aws`], [`super::google`], [`super::github`]), and asking anybody for anything.

use super::Compiler;
use super::github::COPILOT;
use super::google::VERTEX;
use crate::config::reader::Map;
use crate::config::secret;
use crate::policy::identity::Identity;
use crate::policy::provider::{Key, OwnHeader};
use crate::policy::secret::Secret;

const BEDROCK: &str = "bedrock";

/// An identity, and the address that its settings tell.
pub(super) struct Found {
    pub identity: Identity,
    pub told: Told,
    /// The path of an address that has none.
    pub path: Option<String>,
    /// A key that was found where no `keys` are.
    pub key: Option<Key>,
    /// Headers that go with the identity.
    pub headers: Vec<OwnHeader>,
}

/// What settings beside `base_url` tell of the provider's address.
#[derive(Clone)]
pub(super) enum Told {
    Url(String),
    Nothing,
    Refused,
}

impl Found {
    pub fn keys() -> Found {
        Found::of(Identity::Keys)
    }

    /// An identity, and nothing else.
    pub fn of(identity: Identity) -> Found {
        Found {
            identity,
            told: Told::Nothing,
            path: None,
            key: None,
            headers: Vec::new(),
        }
    }
}

impl Compiler<'_> {
    /// What the provider is shown. `None` where it was refused.
    pub(super) fn identity(
        &mut self,
        map: &Map<'_>,
        adapter: Option<&'static str>,
    ) -> Option<Found> {
        self.only_of(map, adapter, "aws", BEDROCK);
        self.only_of(map, adapter, "gcp", VERTEX);
        self.only_of(map, adapter, "copilot", COPILOT);
        if adapter == Some(COPILOT)
            && let Some(copilot) = map.given_map("copilot")
        {
            return self.copilot(map, &copilot);
        }
        if adapter == Some(VERTEX)
            && let Some(gcp) = map.given_map("gcp")
        {
            return self.gcp(map, &gcp);
        }
        match map.given_map("aws") {
            Some(aws) if adapter == Some(BEDROCK) => self.aws(map, &aws),
            Some(_) | None => Some(Found::keys()),
        }
    }

    /// Refuses a key at an adapter where it would do nothing.
    fn only_of(
        &mut self,
        map: &Map<'_>,
        adapter: Option<&'static str>,
        key: &str,
        owner: &'static str,
    ) {
        if let Some(adapter) = adapter.filter(|adapter| *adapter != owner)
            && map.has(key)
        {
            let message = format!("only adapter {owner} has this; {adapter} has not");
            self.report.refuse(&map.at(key), message);
        }
    }

    pub(super) fn secret_of(&mut self, map: &Map<'_>, key: &str) -> Option<Secret> {
        let source = map.given_map(key)?;
        secret::resolve(self, &source)
    }

    /// A variable that holds something a header can carry.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = self.env.var(name)?;
        let text = text.trim();
        is_plain(text).then(|| text.to_owned())
    }
}

/// Whether a header can carry it.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
}
