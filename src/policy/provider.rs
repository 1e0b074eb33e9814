//! One configured provider: where it is, how it is spoken to, with which keys.

use std::sync::Arc;
use std::time::Duration;

use super::health::Health;
use super::identity::Identity;
use super::route::ModelPattern;
use super::secret::Secret;
use crate::core::api::{Api, ApiSet};
use crate::core::time::WallTime;

/// A configured provider.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Name in the configuration.
    pub name: Arc<str>,
    /// Name of the adapter in `providers::registry`, e.g. `openai`.
    pub adapter: &'static str,
    /// API formats it speaks natively; copied from the adapter when the snapshot is compiled.
    pub speaks: ApiSet,
    /// Those of them in which its streams come as the client's format has them.
    pub streams: ApiSet,
    /// Where it is.
    pub base: BaseUrl,
    /// What Azure OpenAI has and others have not; unused for those.
    pub azure: Azure,
    /// Who owns retries (R-P1).
    pub ownership: Ownership,
    /// The gateway's own retries at this provider (R-P2); only ever set when `ownership` is internal.
    pub retry: Option<RetryRules>,
    /// Bare statuses that the operator declares authoritative and pre-execution.
    pub trust_status: Vec<u16>,
    /// Time limits of an attempt.
    pub timeouts: Timeouts,
    /// Whether HTTP/2 may be negotiated (TLS) or is spoken with prior knowledge (cleartext).
    pub http2: bool,
    /// How requests are authenticated.
    pub identity: Identity,
    /// Headers of every request, beside those of its format.
    pub own_headers: Vec<OwnHeader>,
    /// Credentials, in order of preference. May be empty for servers without authentication.
    pub keys: Vec<Key>,
    /// Its health checks and their state, when it has any.
    pub health: Option<Arc<Health>>,
    /// The scripted provider embedded in this process that answers instead of `base`, as YAML text.
    pub mock: Option<MockSource>,
    /// Extra PEM certificates trusted for this provider beside the system's roots.
    pub ca: Option<Arc<[u8]>>,
}

/// A header that the configuration adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnHeader {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value, of visible ASCII.
    pub value: Arc<str>,
}

/// The script of an embedded provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MockSource {
    /// Where the script was found, for error messages: a path, or `inline`.
    pub origin: String,
    /// The YAML text of the script.
    pub text: Arc<str>,
}

/// The parts of `base_url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// `https` or `http`.
    pub tls: bool,
    /// Host name or address literal, without brackets.
    pub host: Arc<str>,
    /// Port, the scheme's default when the URL has none.
    pub port: u16,
    /// `host` or `host:port` as it goes into the Host header or `:authority`.
    pub authority: Arc<str>,
    /// Path prefix without a trailing slash; empty or starting with `/`.
    pub path: Arc<str>,
}

/// Where Azure OpenAI has its operations, and how it is shown its credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Azure {
    /// Whether a deployment stands in the path, in place of the model in the body.
    pub deployments: bool,
    /// The `api-version` of every request, if there is one.
    pub api_version: Option<Arc<str>>,
    /// Whether the key is a token of Entra ID, which goes into `authorization`.
    pub bearer: bool,
}

/// Who retries after a failure of this provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The caller: answers pass with their delay headers.
    External,
    /// The gateway: exhausted answers are marked `x-should-retry: false`.
    Internal,
}

/// `providers.<name>.retry`: same-target retries that the gateway makes itself. Every number is finite (R-P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryRules {
    /// Tries in all, the first included.
    pub attempts_max: u32,
    /// Longest time from the first failure to the start of the last try.
    pub elapsed_max: Duration,
    /// Delay before the second try; doubles from there.
    pub delay_base: Duration,
    /// Longest delay; at least `delay_base`.
    pub delay_max: Duration,
}

/// Time limits of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP and TLS together.
    pub connect: Duration,
    /// From the end of the request to the response header.
    pub first_byte: Duration,
    /// Longest silence inside a body.
    pub idle: Duration,
    /// The whole answer, from dispatch to its last byte.
    pub total: Duration,
}

/// One credential of a provider.
#[derive(Debug, Clone)]
pub struct Key {
    /// Name in the configuration; safe to print.
    pub name: Arc<str>,
    /// The credential.
    pub secret: Secret,
    /// When and before which others it is used.
    pub rules: Arc<KeyRules>,
}

/// What a configuration says of a key beside its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    /// Where it stands among others; lower goes first.
    pub priority: u32,
    /// The same for single API formats.
    pub priority_by_api: Vec<(Api, u32)>,
    /// Its share among keys of equal priority when load is balanced; at least 1.
    pub weight: u32,
    /// Upstream models that it may be used for; empty for all.
    pub models: Vec<ModelPattern>,
    /// From when on it is not used.
    pub expires: Option<WallTime>,
}

impl KeyRules {
    /// Its priority for a format: that of the format, else the general one.
    pub fn priority_for(&self, api: Api) -> u32 {
        let mut by_api = self.priority_by_api.iter();
        let of_format = by_api.find(|(of, _)| *of == api);
        of_format.map_or(self.priority, |(_, priority)| *priority)
    }
}

impl Default for KeyRules {
    fn default() -> KeyRules {
        KeyRules {
            priority: 0,
            priority_by_api: Vec::new(),
            weight: 1,
            models: Vec::new(),
            expires: None,
        }
    }
}
