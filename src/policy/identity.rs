//! What a provider is shown in place of a key: a signature, or a token that is exchanged for something that lasts.
//!
//! Not here: how a signature is made (`providers::sigv4`), tokens themselves (`proxy::credentials`), and where the configuration finds the parts.

use std::sync::Arc;

use super::provider::BaseUrl;
use super::secret::Secret;

/// How requests to a provider are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By the provider's keys; not at all where there are none.
    Keys,
    /// By a signature of AWS over each request.
    Aws(AwsIdentity),
    /// By a token that lives for a while and is exchanged ahead of need.
    Exchanged(Exchange),
}

/// An identity of AWS that does not expire by itself, or whose renewal is the operator's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsIdentity {
    /// The region in which signatures count.
    pub region: Arc<str>,
    /// The public half.
    pub access_key_id: Secret,
    /// The secret half.
    pub secret_access_key: Secret,
    /// The token that goes with temporary credentials.
    pub session_token: Option<Secret>,
    /// Where it was found, for people.
    pub source: Source,
}

/// How a token is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Where; its path is the whole path.
    pub endpoint: BaseUrl,
    /// For what.
    pub grant: Grant,
}

/// What is given for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// A service account of Google: an assertion that its key signs.
    ServiceAccount {
        /// Its name.
        email: Arc<str>,
        /// The name of its key.
        key_id: Option<Arc<str>>,
        /// The key, as PEM.
        private_key: Secret,
        /// Whom the assertion is for: the endpoint as the account names it.
        audience: Arc<str>,
    },
    /// A lasting token of GitHub, for a short-lived one of Copilot.
    Copilot {
        /// The lasting token.
        token: Secret,
        /// Who asks.
        editor_version: Arc<str>,
    },
}

/// Where a credential was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The configuration names it.
    Configuration,
    /// The usual environment variables hold it.
    Environment,
    /// The profile of this name in the shared credentials file holds it.
    Profile(Arc<str>),
}

impl Source {
    /// A phrase for people.
    pub fn phrase(&self) -> String {
        match self {
            Source::Configuration => "the configuration".to_owned(),
            Source::Environment => "the environment".to_owned(),
            Source::Profile(name) => format!("the profile {name}"),
        }
    }
}

impl Identity {
    /// Its name in the pool of keys, where it stands alone; `None` where keys are.
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Identity::Keys => None,
            Identity::Aws(_) => Some("aws"),
            Identity::Exchanged(exchange) => Some(match exchange.grant {
                Grant::ServiceAccount { .. } => "gcp",
                Grant::Copilot { .. } => "copilot",
            }),
        }
    }

    /// What lasts of it and is secret: a changed one is another identity.
    pub const fn secret(&self) -> Option<&Secret> {
        match self {
            Identity::Keys => None,
            Identity::Aws(aws) => Some(&aws.secret_access_key),
            Identity::Exchanged(exchange) => Some(match &exchange.grant {
                Grant::ServiceAccount { private_key, .. } => private_key,
                Grant::Copilot { token, .. } => token,
            }),
        }
    }

    /// What is shown to the provider, for people; `None` where keys are.
    pub fn phrase(&self) -> Option<String> {
        match self {
            Identity::Keys => None,
            Identity::Aws(aws) => Some(format!(
                "AWS signature for {}, access key of {}",
                aws.region,
                aws.source.phrase()
            )),
            Identity::Exchanged(exchange) => Some(match &exchange.grant {
                Grant::ServiceAccount { email, .. } => {
                    format!("token of the service account {email}")
                }
                Grant::Copilot { .. } => {
                    let host = &exchange.endpoint.authority;
                    format!("short-lived token, exchanged at {host}")
                }
            }),
        }
    }
}
