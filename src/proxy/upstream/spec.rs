//! Everything one attempt needs, prepared fresh for its target.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use parking_lot::Mutex;
use pingora_core::{Error, ErrorType, OrErr, Result};
use pingora_http::RequestHeader;

use crate::core::time::MonoTime;
use crate::providers::answer::RequestTraits;
use crate::providers::outbound::Segments;
use crate::wire::request::write_head;

use super::super::operation::OperationCell;
use super::super::peer::KnownPeer;
use super::super::prepared::PreparedProvider;

/// One attempt, ready to be sent.
pub struct AttemptSpec {
    /// The operation that it belongs to.
    pub cell: Arc<OperationCell>,
    /// The provider of its target.
    pub provider: Arc<PreparedProvider>,
    /// Where it goes.
    pub peer: Arc<KnownPeer>,
    /// Path and query at the target.
    pub path: String,
    /// All headers but `host`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, as slices of the client's with the target's model, until it is written.
    pub body: Mutex<Option<Segments>>,
    /// What the request was, for reading its answer.
    pub traits: RequestTraits,
    /// The operation's deadline.
    pub deadline: MonoTime,
}

impl AttemptSpec {
    /// The head of the request on HTTP/1.1.
    pub fn head(&self, out: &mut BytesMut) -> Result<()> {
        let authority = &self.provider.provider.base.authority;
        let written = write_head(
            out,
            self.method().as_str(),
            &self.path,
            authority,
            &self.headers,
        );
        written.ok_or_else(|| {
            Error::explain(
                ErrorType::InvalidHTTPHeader,
                "a target that no line can hold",
            )
        })
    }

    /// The header of the request on HTTP/2.
    pub fn header(&self) -> Result<Box<RequestHeader>> {
        let size = Some(self.headers.len());
        let path = self.path.as_bytes();
        let mut header = RequestHeader::build_no_case(self.method(), path, size)?;
        let scheme = if self.peer.is_tls() { "https" } else { "http" };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(&*self.provider.provider.base.authority)
            .path_and_query(self.path.as_str())
            .build()
            .or_err(ErrorType::InternalError, "building the request target")?;
        header.set_uri(uri);
        header.set_version(Version::HTTP_2);
        for (name, value) in &self.headers {
            header.append_header(name.clone(), value.clone())?;
        }
        Ok(Box::new(header))
    }

    fn method(&self) -> Method {
        match self.is_handshake() {
            true => Method::GET,
            false => Method::POST,
        }
    }

    /// Whether it asks for a change of protocols.
    pub fn is_handshake(&self) -> bool {
        self.traits.api.is_socket()
    }

    /// The slices of the body, for writing: once, and nothing of them stays here while the answer comes.
    pub fn take_parts(&self) -> impl Iterator<Item = Bytes> {
        let parts = self.body.lock().take().into_iter().flatten();
        parts.filter(|part| !part.is_empty())
    }
}

/// The error for a step of an exchange that has not come to it.
pub fn missing() -> Box<Error> {
    Error::explain(ErrorType::InternalError, "an exchange out of its order")
}
