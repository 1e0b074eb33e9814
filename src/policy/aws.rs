//! Identities of AWS: credentials that last, and where those come from that do not.
//!
//! Not here: how a signature is made (`providers::sigv4`), what is asked of whom for credentials (`providers::aws_session`), and where the
//! configuration finds all this.

use std::sync::Arc;

use super::provider::BaseUrl;
use super::secret::Secret;

/// What signs a request.
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

/// Credentials that live for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsSession {
    /// The region in which signatures count.
    pub region: Arc<str>,
    /// Who gives them.
    pub source: AwsSource,
}

/// Who gives credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwsSource {
    /// Nobody: they last, and a role begins with them.
    Fixed(AwsIdentity),
    /// The token service, for credentials of another source.
    Role(Box<AwsRole>),
    /// The token service, for a token that somebody else keeps in a file.
    WebIdentity(AwsWebIdentity),
    /// A program.
    Process(AwsProcess),
    /// The agent beside a container.
    Container(AwsContainer),
    /// The metadata service of a machine.
    Instance(BaseUrl),
}

/// A role that is assumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsRole {
    /// The token service.
    pub endpoint: BaseUrl,
    /// The role.
    pub arn: Arc<str>,
    /// The name of the session in the account's logs.
    pub session_name: Arc<str>,
    /// What the role's owner wants to hear.
    pub external_id: Option<Secret>,
    /// Who assumes it.
    pub base: AwsSource,
}

/// A role for a web identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsWebIdentity {
    /// The token service.
    pub endpoint: BaseUrl,
    /// The role.
    pub arn: Arc<str>,
    /// The name of the session in the account's logs.
    pub session_name: Arc<str>,
    /// The file with the token. Its contents change, so it is read each time.
    pub token_file: Arc<str>,
}

/// A program that prints credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsProcess {
    /// The program and its arguments, which may be secret.
    pub words: Vec<Secret>,
    /// The profile that names it.
    pub profile: Arc<str>,
}

/// The agent beside a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsContainer {
    /// Where it is.
    pub endpoint: BaseUrl,
    /// Path and query as they are sent. Some agents take them for a password.
    pub path: Secret,
    /// What it is shown.
    pub authorization: Option<AwsAuthorization>,
}

/// What an agent is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwsAuthorization {
    /// This.
    Token(Secret),
    /// What a file holds, read each time.
    File(Arc<str>),
}

/// Where a credential was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The configuration names it.
    Configuration,
    /// The usual environment variables hold it.
    Environment,
    /// The profile of this name in the shared files holds it.
    Profile(Arc<str>),
    /// It is renewed.
    Renewed,
}

impl Source {
    /// A phrase for people.
    pub fn phrase(&self) -> String {
        match self {
            Source::Configuration => "the configuration".to_owned(),
            Source::Environment => "the environment".to_owned(),
            Source::Profile(name) => format!("the profile {name}"),
            Source::Renewed => "a session".to_owned(),
        }
    }
}

impl AwsSource {
    /// What lasts of it and is secret.
    pub const fn secret(&self) -> Option<&Secret> {
        match self {
            AwsSource::Fixed(fixed) => Some(&fixed.secret_access_key),
            AwsSource::Role(role) => role.base.secret(),
            AwsSource::Container(AwsContainer {
                authorization: Some(AwsAuthorization::Token(token)),
                ..
            }) => Some(token),
            AwsSource::WebIdentity(_)
            | AwsSource::Process(_)
            | AwsSource::Container(_)
            | AwsSource::Instance(_) => None,
        }
    }

    /// Whom it takes to ask.
    pub fn endpoints(&self) -> Vec<&BaseUrl> {
        match self {
            AwsSource::Fixed(_) | AwsSource::Process(_) => Vec::new(),
            AwsSource::Role(role) => {
                let mut endpoints = role.base.endpoints();
                endpoints.push(&role.endpoint);
                endpoints
            }
            AwsSource::WebIdentity(web) => vec![&web.endpoint],
            AwsSource::Container(container) => vec![&container.endpoint],
            AwsSource::Instance(endpoint) => vec![endpoint],
        }
    }

    /// A phrase for people.
    pub fn phrase(&self) -> String {
        match self {
            AwsSource::Fixed(fixed) => format!("the access key of {}", fixed.source.phrase()),
            AwsSource::Role(role) => {
                format!("the role {}, assumed with {}", role.arn, role.base.phrase())
            }
            AwsSource::WebIdentity(web) => {
                format!("the role {}, for the token in {}", web.arn, web.token_file)
            }
            AwsSource::Process(process) => {
                format!("the credential_process of the profile {}", process.profile)
            }
            AwsSource::Container(container) => {
                format!("the container's agent at {}", container.endpoint.authority)
            }
            AwsSource::Instance(endpoint) => {
                format!("the instance's metadata at {}", endpoint.authority)
            }
        }
    }
}
