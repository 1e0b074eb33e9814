//! The steps that lead to a session of AWS, each with the answer of the one before.
//!
//! Not here: what is asked and how answers are read ([`aws_session`]). Files are read at each turn, since who keeps them renews them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::line::ExchangeError;
use super::{Credential, Had, TokenSource, process};
use crate::policy::aws::{
    AwsAuthorization, AwsContainer, AwsRole, AwsSession, AwsSource, AwsWebIdentity,
};
use crate::policy::provider::BaseUrl;
use crate::policy::secret::Secret;
use crate::providers::aws_session::{self, Given, Reading};
use crate::providers::token::{ANSWER_BYTES_MAX, LIFETIME_MAX, TokenError};

type Step<'a> = Pin<Box<dyn Future<Output = Result<Given, ExchangeError>> + Send + 'a>>;

impl TokenSource {
    pub(super) async fn session(&self, session: &AwsSession) -> Result<Had, ExchangeError> {
        let given = self.given(&session.source, &session.region).await?;
        Ok(Had {
            credential: Credential::Aws(Arc::new(given.identity)),
            lifetime: given.lifetime,
        })
    }

    /// Boxed, since a role begins with another source.
    fn given<'a>(&'a self, source: &'a AwsSource, region: &'a str) -> Step<'a> {
        Box::pin(async move {
            match source {
                AwsSource::Fixed(identity) => Ok(Given {
                    identity: identity.clone(),
                    lifetime: LIFETIME_MAX,
                }),
                AwsSource::Role(role) => self.role(role, region).await,
                AwsSource::WebIdentity(web) => self.web_identity(web, region).await,
                AwsSource::Process(words) => {
                    let output = process::output(&words.words).await?;
                    Ok(aws_session::read_process(&output, &self.reading(region))?)
                }
                AwsSource::Container(container) => self.container(container, region).await,
                AwsSource::Instance(endpoint) => self.instance(endpoint, region).await,
            }
        })
    }

    async fn role(&self, role: &AwsRole, region: &str) -> Result<Given, ExchangeError> {
        let base = self.given(&role.base, region).await?;
        let ask = aws_session::ask_role(role, &base.identity, &self.reading(region));
        let (status, body) = self.line(&role.endpoint)?.send(&ask).await?;
        let reading = self.reading(region);
        Ok(aws_session::read_role(status, &body, &reading)?)
    }

    async fn web_identity(
        &self,
        web: &AwsWebIdentity,
        region: &str,
    ) -> Result<Given, ExchangeError> {
        let token = contents(&web.token_file).await?;
        let ask = aws_session::ask_web_identity(web, token.expose());
        let (status, body) = self.line(&web.endpoint)?.send(&ask).await?;
        let reading = self.reading(region);
        Ok(aws_session::read_role(status, &body, &reading)?)
    }

    async fn container(
        &self,
        container: &AwsContainer,
        region: &str,
    ) -> Result<Given, ExchangeError> {
        let authorization = match &container.authorization {
            Some(AwsAuthorization::Token(token)) => Some(token.clone()),
            Some(AwsAuthorization::File(file)) => Some(contents(file).await?),
            None => None,
        };
        let ask = aws_session::ask_container(container, authorization);
        let (status, body) = self.line(&container.endpoint)?.send(&ask).await?;
        let reading = self.reading(region);
        Ok(aws_session::read_json(status, &body, &reading)?)
    }

    /// A session first: without one, whatever can make this machine fetch a URL could have the credentials.
    async fn instance(&self, endpoint: &BaseUrl, region: &str) -> Result<Given, ExchangeError> {
        let line = self.line(endpoint)?;
        let (status, body) = line.send(&aws_session::ask_instance_session()).await?;
        let session = aws_session::read_instance_session(status, &body)?;
        let (status, body) = line.send(&aws_session::ask_instance_role(&session)).await?;
        let role = aws_session::read_instance_role(status, &body)?;
        let ask = aws_session::ask_instance_credentials(&session, &role);
        let (status, body) = line.send(&ask).await?;
        let reading = self.reading(region);
        Ok(aws_session::read_json(status, &body, &reading)?)
    }

    fn reading<'a>(&self, region: &'a str) -> Reading<'a> {
        let now = self.clock.wall();
        Reading { region, now }
    }
}

/// What a file holds, without white space around it.
async fn contents(file: &Arc<str>) -> Result<Secret, ExchangeError> {
    let path = file.to_string();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read;
        let mut text = String::new();
        let bound = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
        let file = std::fs::File::open(path)?;
        file.take(bound).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    let failed = |kind| ExchangeError::File(Arc::clone(file), kind);
    let text = match read.await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(failed(error.kind())),
        Err(_) => return Err(failed(std::io::ErrorKind::Other)),
    };
    match text.trim() {
        "" => Err(TokenError::Answer("token in the file").into()),
        text => Ok(Secret::new(text)),
    }
}
