//! One request to one endpoint that gives credentials, on a connection of its own: the next is needed much later.
//!
//! Not here: what is asked. Bounds: time, and bytes of an answer. Redirects are not followed: what is sent is worth a credential.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use http::header::{ACCEPT, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, USER_AGENT};
use pingora_core::connectors::http::v1::Connector;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;

use crate::policy::provider::BaseUrl;
use crate::providers::token::{ANSWER_BYTES_MAX, Ask, TokenError};
use crate::proxy::host::Exchanged;
use crate::proxy::resolver::Addresses;

/// Time for one request, the connection included. Endpoints answer within a second.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// An endpoint, and how it is reached.
pub(super) struct Line {
    pub endpoint: BaseUrl,
    pub addresses: Arc<Addresses>,
    /// A peer without its address.
    pub template: HttpPeer,
    pub connector: Arc<OnceLock<Connector>>,
}

/// Why there is no credential.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Of Pingora's errors the kind alone is told.
    #[error("the endpoint {0} cannot be asked: {1}")]
    Transport(Arc<str>, String),
    #[error("the endpoint {0} did not answer in time")]
    Silent(Arc<str>),
    #[error("it did not come in time")]
    Late,
    #[error("the file {0} cannot be read: {1}")]
    File(Arc<str>, std::io::ErrorKind),
    #[error("the program {0}")]
    Program(String),
    #[error("nobody is known to be asked")]
    Unknown,
}

impl ExchangeError {
    /// How it is counted.
    pub fn label(&self) -> Exchanged {
        match self {
            ExchangeError::Token(TokenError::Refused { .. }) => Exchanged::Refused,
            ExchangeError::Token(TokenError::Answer(_)) => Exchanged::Malformed,
            ExchangeError::Transport(..) => Exchanged::Unreachable,
            ExchangeError::Silent(_) | ExchangeError::Late => Exchanged::TimedOut,
            ExchangeError::Token(TokenError::Key(_))
            | ExchangeError::File(..)
            | ExchangeError::Program(_)
            | ExchangeError::Unknown => Exchanged::Local,
        }
    }
}

impl Line {
    /// Status and body of the answer.
    pub async fn send(&self, ask: &Ask) -> Result<(u16, BytesMut), ExchangeError> {
        let sent = tokio::time::timeout(REQUEST_TIME_MAX, self.exchange(ask)).await;
        sent.unwrap_or_else(|_| Err(ExchangeError::Silent(self.name())))
    }

    async fn exchange(&self, ask: &Ask) -> Result<(u16, BytesMut), ExchangeError> {
        let failed = |error: Box<pingora_core::Error>| self.transport(error.etype().as_str());
        let address = self.address().await?;
        let mut peer = self.template.clone();
        peer._address = PeerAddress::Inet(address);
        let connector = self.connector.get_or_init(|| Connector::new(None));
        let (mut session, _) = connector.get_http_session(&peer).await.map_err(failed)?;
        let header = self.header(ask).map_err(failed)?;
        session
            .write_request_header(Box::new(header))
            .await
            .map_err(failed)?;
        if !ask.body.expose().is_empty() {
            let body = ask.body.expose().as_bytes();
            session.write_body(body).await.map_err(failed)?;
        }
        session.finish_body().await.map_err(failed)?;
        session.read_response().await.map_err(failed)?;
        let status = session.get_status().map_or(0, |status| status.as_u16());
        let mut body = BytesMut::new();
        while let Some(part) = session.read_body_bytes().await.map_err(failed)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(TokenError::Answer("length").into());
            }
        }
        session.shutdown().await;
        Ok((status, body))
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.endpoint.authority)
    }

    fn transport(&self, what: &str) -> ExchangeError {
        ExchangeError::Transport(self.name(), what.to_owned())
    }

    async fn address(&self) -> Result<SocketAddr, ExchangeError> {
        if self.addresses.pick().is_none() {
            let asked = self.addresses.resolve().await;
            asked.map_err(|error| self.transport(&error.kind().to_string()))?;
        }
        let picked = self.addresses.pick();
        picked.ok_or_else(|| self.transport("the name has no address"))
    }

    fn header(&self, ask: &Ask) -> pingora_core::Result<RequestHeader> {
        let path = match ask.path.expose() {
            "" => "/",
            path => path,
        };
        let mut header = RequestHeader::build(ask.method, path.as_bytes(), Some(8))?;
        header.append_header(HOST, &*self.endpoint.authority)?;
        header.append_header(ACCEPT, ask.accept)?;
        let own = concat!("rondo/", env!("CARGO_PKG_VERSION"));
        header.append_header(USER_AGENT, own)?;
        for (name, value) in &ask.headers {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                pingora_core::Error::new_in(pingora_core::ErrorType::InvalidHTTPHeader)
            })?;
            value.set_sensitive(true);
            header.append_header(HeaderName::from_static(name), value)?;
        }
        if header.method != Method::GET {
            header.append_header(CONTENT_LENGTH, ask.body.expose().len())?;
        }
        Ok(header)
    }
}
