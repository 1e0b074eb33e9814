//! What a provider is shown in place of a key: an identity that signs.
//!
//! Not here: how a signature is made (`providers::sigv4`) and where the configuration finds the parts.

use std::sync::Arc;

use super::secret::Secret;

/// How requests to a provider are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By the provider's keys; not at all where there are none.
    Keys,
    /// By a signature of AWS over each request.
    Aws(AwsIdentity),
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
    /// What is shown to the provider, for people; `None` where keys are.
    pub fn phrase(&self) -> Option<String> {
        match self {
            Identity::Keys => None,
            Identity::Aws(aws) => Some(format!(
                "AWS signature for {}, access key of {}",
                aws.region,
                aws.source.phrase()
            )),
        }
    }
}
