//! What a provider is shown in place of a key: a signature, or a token that is exchanged for something that lasts.
//!
//! Not here: how a signature is made (`providers::sigv4`), tokens themselves (`proxy::credentials`), and where the configuration finds the parts.

use std::sync::Arc;

use super::aws::{AwsIdentity, AwsSession};
use super::provider::BaseUrl;
use super::secret::Secret;

/// How requests to a provider are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By the provider's keys; not at all where there are none.
    Keys,
    /// By a signature of AWS over each request.
    Aws(AwsIdentity),
    /// The same by credentials that live for a while and are had ahead of need.
    AwsSession(AwsSession),
    /// By a token that lives for a while and is exchanged ahead of need.
    Exchanged(Exchange),
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
    /// A user's own consent, as gcloud keeps it.
    RefreshToken {
        /// The program that the user gave it to.
        client_id: Arc<str>,
        /// What goes with it.
        client_secret: Secret,
        /// The consent.
        refresh_token: Secret,
    },
    /// Nothing: the metadata server knows the machine.
    MetadataServer,
    /// A lasting token of GitHub, for a short-lived one of Copilot.
    Copilot {
        /// The lasting token.
        token: Secret,
        /// Who asks.
        editor_version: Arc<str>,
    },
}

impl Identity {
    /// Its name in the pool of keys, where it stands alone; `None` where keys are.
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Identity::Keys => None,
            Identity::Aws(_) | Identity::AwsSession(_) => Some("aws"),
            Identity::Exchanged(exchange) => Some(match exchange.grant {
                Grant::ServiceAccount { .. }
                | Grant::RefreshToken { .. }
                | Grant::MetadataServer => "gcp",
                Grant::Copilot { .. } => "copilot",
            }),
        }
    }

    /// What lasts of it and is secret: a changed one is another identity.
    pub const fn secret(&self) -> Option<&Secret> {
        match self {
            Identity::Keys => None,
            Identity::Aws(aws) => Some(&aws.secret_access_key),
            Identity::AwsSession(session) => session.source.secret(),
            Identity::Exchanged(exchange) => match &exchange.grant {
                Grant::ServiceAccount { private_key, .. } => Some(private_key),
                Grant::RefreshToken { refresh_token, .. } => Some(refresh_token),
                Grant::MetadataServer => None,
                Grant::Copilot { token, .. } => Some(token),
            },
        }
    }

    /// Whom it takes to ask for what is shown to the provider, if anybody.
    pub fn endpoints(&self) -> Vec<&BaseUrl> {
        match self {
            Identity::Keys | Identity::Aws(_) => Vec::new(),
            Identity::AwsSession(session) => session.source.endpoints(),
            Identity::Exchanged(exchange) => vec![&exchange.endpoint],
        }
    }

    /// Whether it is renewed beside the requests.
    pub const fn is_renewed(&self) -> bool {
        match self {
            Identity::Keys | Identity::Aws(_) => false,
            Identity::AwsSession(_) | Identity::Exchanged(_) => true,
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
            Identity::AwsSession(session) => Some(format!(
                "AWS signature for {}, renewed by {}",
                session.region,
                session.source.phrase()
            )),
            Identity::Exchanged(exchange) => Some(match &exchange.grant {
                Grant::ServiceAccount { email, .. } => {
                    format!("token of the service account {email}")
                }
                Grant::RefreshToken { .. } => "token of a user's own consent".to_owned(),
                Grant::MetadataServer => {
                    format!(
                        "token of the metadata server {}",
                        exchange.endpoint.authority
                    )
                }
                Grant::Copilot { .. } => {
                    let host = &exchange.endpoint.authority;
                    format!("short-lived token, exchanged at {host}")
                }
            }),
        }
    }
}
