//! Reading on when the client has left (`on_client_disconnect: drain`): the provider charges for the answer, and its end says how much.
//!
//! Not here: the records of the operation, which settle at once as with `abort`. Invariants: it is bounded in time, bytes and number;
//! nothing of the client's request is held; usage is all that it can change; a connection goes back to the pool only after a whole answer.

use std::sync::Arc;

use pingora_core::Result;
use pingora_http::ResponseHeader;
use tokio::time::timeout;

use super::connection::Connection;
use super::connector::AttemptConnector;
use super::drain::{close, pool};
use super::session::AttemptSession;
use super::write::{Written, header_of};
use crate::core::limits::{READ_ON_BYTES_MAX, READ_ON_TIME_MAX};
use crate::policy::routing::OnDisconnect;
use crate::providers::answer::{RequestTraits, ResponseHead};
use crate::providers::usage::UsageReader;
use crate::proxy::host::DrainEnd;
use crate::proxy::operation::OperationCell;
use crate::proxy::peer::KnownPeer;
use crate::proxy::translate::Headers;

/// An answer that is read on.
pub(super) struct ReadOn {
    cell: Arc<OperationCell>,
    traits: RequestTraits,
    inner: Connection,
    peer: Arc<KnownPeer>,
    /// Whether the head of the answer was read.
    has_head: bool,
}

impl ReadOn {
    /// Reads on in the background if the client has left an answer that may still tell its usage, and the route asks for it; the
    /// connection then leaves the session. Says whether it does.
    pub(super) fn begin(connector: &AttemptConnector, session: &mut AttemptSession) -> bool {
        if !may_tell(session) {
            return false;
        }
        let spec = Arc::clone(&session.spec);
        let (cell, traits, peer) = (Arc::clone(&spec.cell), spec.traits, Arc::clone(&spec.peer));
        let observer = Arc::clone(&cell.around.observer);
        let Ok(permit) = Arc::clone(&cell.around.drains).try_acquire_owned() else {
            observer.drain_ended(DrainEnd::Refused);
            return false;
        };
        let Some(inner) = session.inner.take() else {
            return false;
        };
        let read_on = ReadOn {
            has_head: session.written.is_some(),
            cell,
            traits,
            inner,
            peer,
        };
        // The end of the process waits for it as for a request, up to the grace period.
        let flight = read_on.cell.around.inflight.enter();
        observer.drain_begun();
        let connector = connector.clone();
        tokio::spawn(async move {
            let end = read_on.run(&connector).await;
            observer.drain_ended(end);
            drop((permit, flight));
        });
        true
    }

    async fn run(mut self, connector: &AttemptConnector) -> DrainEnd {
        let end = match timeout(READ_ON_TIME_MAX, self.follow()).await {
            Err(_) => DrainEnd::Limit,
            Ok(Err(_)) => DrainEnd::Failed,
            Ok(Ok(end)) => end,
        };
        self.cell.usage_settled();
        match end {
            DrainEnd::Usage | DrainEnd::Complete => pool(connector, self.inner, &self.peer).await,
            DrainEnd::Limit | DrainEnd::Failed | DrainEnd::Refused => {
                close(connector, self.inner, &self.peer).await;
            }
        }
        end
    }

    async fn follow(&mut self) -> Result<DrainEnd> {
        if !self.has_head {
            let header = read_head(&mut self.inner).await?;
            let headers = Headers(&header.headers);
            let head = ResponseHead {
                status: header.status.as_u16(),
                headers: &headers,
            };
            let usage = UsageReader::new(self.traits.api, self.traits.stream, &head);
            self.cell.answer_begun(usage);
        }
        let mut bytes = 0_usize;
        while let Some(part) = self.inner.read_body().await? {
            self.cell.answer_read(&part);
            bytes = bytes.saturating_add(part.len());
            if bytes > READ_ON_BYTES_MAX {
                return Ok(DrainEnd::Limit);
            }
        }
        self.cell.answer_ended();
        Ok(match self.cell.knows_usage() {
            true => DrainEnd::Usage,
            false => DrainEnd::Complete,
        })
    }
}

/// Whether this session was left by its client, at a point from which its answer can be read on and may tell its usage.
fn may_tell(session: &AttemptSession) -> bool {
    let spec = &session.spec;
    let is_asked = spec.cell.facts.route.routing.on_client_disconnect == OnDisconnect::Drain;
    let is_left = !session.is_over && !session.ended && session.inner.is_some();
    let is_ready = match session.written {
        None => session.is_sent && !spec.is_handshake(),
        Some(Written::Whole) => spec.cell.reads_usage(),
        Some(Written::Part) => false,
    };
    is_asked && is_left && is_ready
}

/// The final head of the answer.
async fn read_head(inner: &mut Connection) -> Result<ResponseHeader> {
    match inner {
        Connection::Http1(connection) => connection.read_head(false).await.map(header_of),
        Connection::Http2(stream) => {
            stream.read_response_header().await?;
            let header = stream.response_header().cloned();
            header.ok_or_else(super::spec::missing)
        }
    }
}
