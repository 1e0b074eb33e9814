//! Pingora's hooks. Each translates and does nothing else; the order in which they run is in the module doc of [`super`].
//!
//! Traps of Pingora 0.9.1 that shape them: a retry flag that nobody decides panics, so both error hooks always set it; `max_retries` counts
//! attempts, and 0 would answer nothing at all; after an error past `upstream_peer` the client's HTTP/1.1 connection cannot be kept.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::http::ServerSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use rand::Rng;

use super::body;
use super::ctx::{RequestCtx, Requester, Told};
use super::front;
use super::gateway::{Gateway, check_client, is_doubtful};
use super::operation::{CLIENT_CLOSED_REQUEST, OperationCell};
use super::refuse::Refused;
use super::relay::{self, has_left};
use super::respond::{self, Answer};
use super::upgrade;
use super::upstream::{AGAIN, AttemptConnector};
use crate::core::api::{Api, Family};
use crate::core::time::WallTime;
use crate::executor::effect::{FinalAnswer, Next};
use crate::executor::event::{Event, StreamEnd};
use crate::policy::route::ModelPattern;
use crate::providers::client_headers::sane_request_id;
use crate::providers::envelope::GatewayCode;
use crate::providers::inbound::{Inbound, family_of, recognise};
use crate::providers::models_list::models_list;

/// The proxy application. Cheap to clone; one serves each listener.
#[derive(Clone)]
pub struct DataPlane {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connector: AttemptConnector,
    signpost: Arc<HttpPeer>,
}

impl DataPlane {
    /// The application over the shared state, and the connections of its attempts.
    pub fn new(gateway: Arc<Gateway>, connector: AttemptConnector) -> DataPlane {
        DataPlane {
            gateway,
            connector,
            signpost: Arc::new(AttemptConnector::signpost()),
        }
    }

    async fn serve(
        &self,
        session: &mut Session,
        inbound: Inbound<'_>,
        ctx: &mut RequestCtx,
        who: &mut Requester,
    ) -> Result<Next, Refused> {
        match inbound {
            Inbound::Operation(asked) => {
                who.api = Some(asked.api);
                self.gateway
                    .admit(session.as_downstream_mut(), &asked, who, ctx)
                    .await
            }
            Inbound::ListModels | Inbound::MethodNotAllowed { .. } => {
                Err(Refused::unread(GatewayCode::MethodNotAllowed))
            }
            Inbound::NotFound => Err(Refused::unread(GatewayCode::PathNotFound)),
        }
    }

    fn requester(&self, session: &Session) -> Requester {
        let sent = session
            .get_header("x-request-id")
            .map(|value| value.as_bytes());
        let started = self.gateway.around.clock.stamp();
        let id = match sent.and_then(sane_request_id) {
            Some(id) => Arc::from(id),
            None => Arc::from(made_id(started.wall)),
        };
        Requester {
            id,
            started,
            api: None,
        }
    }

    async fn refuse(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
        who: &Requester,
        refused: Refused,
    ) -> Result<bool> {
        let now = self.gateway.around.clock.stamp();
        let Some(error) = refused.error else {
            let told = Told {
                route: refused.route,
                status: CLIENT_CLOSED_REQUEST,
                code: "client_gone",
                overload: None,
            };
            ctx.refused(who, told, now);
            session.set_keepalive(None);
            return match refused.broke {
                Some(error) => Err(error.into_down()),
                None => Ok(true),
            };
        };
        let told = Told {
            route: refused.route,
            status: error.status(),
            code: error.code().label(),
            overload: refused.overload,
        };
        ctx.refused(who, told, now);
        let family = who
            .api
            .map_or_else(|| family(session.as_downstream()), |api| api.family());
        let mut answer = respond::gateway_error(family, &error, &who.id)?;
        if error.code() == GatewayCode::MethodNotAllowed {
            let allow = match recognise("", session.req_header().uri.path()) {
                Inbound::MethodNotAllowed { allow } => allow,
                _ => "POST",
            };
            answer.header.insert_header("allow", allow)?;
        }
        if matches!(
            error.code(),
            GatewayCode::MethodNotAllowed | GatewayCode::PathNotFound | GatewayCode::ModelNotFound
        ) {
            body::skip(session.as_downstream_mut()).await;
        }
        // Whoever finds no room comes again, and a new connection costs both sides more than a small body. A drain wants it closed.
        let passes = refused.overload.is_some()
            && error.code() != GatewayCode::ShuttingDown
            && body::pass_over(session.as_downstream_mut());
        let is_cut = refused.unread && !passes && !session.as_downstream_mut().is_body_done();
        if is_cut {
            session.set_keepalive(None);
        }
        write(session, answer).await?;
        // On HTTP/2 the end of the stream says it all; and who has sent nothing for so long will not send now.
        if is_cut && !session.is_http2() && error.code() != GatewayCode::RequestTimeout {
            body::linger(session.as_downstream_mut()).await;
        }
        Ok(true)
    }

    async fn list_models(&self, session: &mut Session, who: &Requester) -> Result<bool> {
        let config = self.gateway.config.load_full();
        let routes = config.snapshot.routes.iter();
        let names: Vec<&str> = routes
            .flat_map(|route| &route.models)
            .filter_map(|pattern| match pattern {
                ModelPattern::Exact(name) => Some(&**name),
                ModelPattern::Prefix(_) => None,
            })
            .collect();
        let body = Bytes::from(models_list(family(session.as_downstream()), &names, 0));
        let mut header = ResponseHeader::build(200, Some(4))?;
        header.insert_header("content-type", "application/json")?;
        header.insert_header("content-length", body.len())?;
        header.insert_header("x-request-id", &*who.id)?;
        write(session, Answer { header, body }).await?;
        Ok(true)
    }
}

/// The format of a request whose path names none, by its path and headers.
pub(super) fn family(session: &ServerSession) -> Family {
    let has = |name: &str| session.get_header(name).is_some();
    let path = session.req_header().uri.path();
    family_of(
        path,
        has("anthropic-version").into(),
        has("x-goog-api-key").into(),
    )
}

/// Writes an answer outside a session.
async fn write(session: &mut Session, answer: Answer) -> Result<()> {
    // An answer to HEAD tells of a body and has none.
    let ends = answer.body.is_empty() || session.req_header().method == http::Method::HEAD;
    session
        .write_response_header(Box::new(answer.header), ends)
        .await?;
    if !ends {
        session.write_response_body(Some(answer.body), true).await?;
    }
    Ok(())
}

/// Writes the final answer of an operation outside a session, and settles it.
pub(super) async fn write_final(
    session: &mut Session,
    cell: &OperationCell,
    answer: &FinalAnswer,
) -> Result<u16> {
    let answer = respond::final_answer(cell, answer)?;
    let (status, length) = (answer.header.status.as_u16(), answer.body.len());
    cell.committed(status);
    let written = write(session, answer).await;
    cell.wrote(length, written.is_ok());
    let end = if written.is_ok() {
        StreamEnd::Complete
    } else {
        StreamEnd::ClientGone
    };
    let _ = cell.feed(Event::StreamEnded(end));
    written.map(|()| status)
}

/// A request id: 48 bits of Unix time in milliseconds, then chance. Ids that begin with the time are written at the end of a store's index.
pub(super) fn made_id(now: WallTime) -> String {
    let millis = u128::try_from(now.unix_micros() / 1_000).unwrap_or_default();
    let chance = rand::rng().random::<u128>() >> 48;
    format!("{:032x}", (millis << 80) | chance)
}

#[async_trait]
impl ProxyHttp for DataPlane {
    type CTX = RequestCtx;

    fn new_ctx(&self) -> RequestCtx {
        front::head_arrived();
        RequestCtx::new(&self.gateway.around)
    }

    /// None: Pingora's own would be asked for each request and never do anything.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut RequestCtx) -> Result<bool> {
        ctx.open();
        let mut who = self.requester(session);
        let keepalive = {
            let config = self.gateway.config.load();
            let server = &config.snapshot.server;
            // Without it a client that never reads would keep its operation for ever.
            session.set_write_timeout(Some(server.client_write_timeout));
            server.keepalive_timeout
        };
        // Pingora has judged whether the connection can be kept: by version, framing and its own shutdown. Only the time is ours.
        if session.as_downstream_mut().get_keepalive().is_some() {
            session.set_keepalive(Some(keepalive.as_secs().max(1)));
        }
        if is_doubtful(session.as_downstream()) {
            let refused = Refused::unread(GatewayCode::InvalidRequest);
            return self.refuse(session, ctx, &who, refused).await;
        }
        let path = session.req_header().uri.path().to_owned();
        let inbound = recognise(session.req_header().method.as_str(), &path);
        if inbound == Inbound::ListModels {
            let config = self.gateway.config.load_full();
            if let Err(refused) = check_client(&config, session.req_header()) {
                return self.refuse(session, ctx, &who, refused).await;
            }
            return self.list_models(session, &who).await;
        }
        match self.serve(session, inbound, ctx, &mut who).await {
            Err(refused) => self.refuse(session, ctx, &who, refused).await,
            Ok(Next::Answer(answer)) => match ctx.cell() {
                Some(cell) => write_final(session, cell, &answer).await.map(|_| true),
                None => Ok(true),
            },
            // What may become a tunnel goes on in Pingora's loop, which pumps both directions.
            Ok(_) if who.api.is_some_and(Api::is_socket) => Ok(false),
            Ok(_) => self.relay(session, ctx).await.map(|()| true),
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
    ) -> Result<Box<HttpPeer>> {
        match self.next_attempt(session, ctx).await {
            Ok(()) => Ok(Box::new(HttpPeer::clone(&self.signpost))),
            Err(answer) => {
                ctx.answer = answer;
                let mut error = Error::new_in(ErrorType::Custom("the operation ends here"));
                error.set_retry(false);
                Err(error)
            }
        }
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        upstream: &mut RequestHeader,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        if let Some(spec) = ctx.prepared.take() {
            upstream.extensions_mut().insert(spec);
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        upstream: &mut ResponseHeader,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        if let Some(operation) = &mut ctx.operation {
            operation.cell.committed(upstream.status.as_u16());
            operation.release_body();
        }
        if upstream.status == http::StatusCode::SWITCHING_PROTOCOLS {
            upgrade::switched(session.as_downstream_mut());
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut RequestCtx,
    ) -> Result<Option<Duration>> {
        let Some(cell) = ctx.cell() else {
            return Ok(None);
        };
        let bytes = body.as_ref().map_or(0, Bytes::len);
        cell.wrote(bytes, end);
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        _ctx: &mut RequestCtx,
        mut error: Box<Error>,
    ) -> Box<Error> {
        // Never reached: sessions connect lazily. Were it reached, nothing has been decided.
        error.set_retry(false);
        error
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut RequestCtx,
        _reused: bool,
    ) -> Box<Error> {
        let again = error.etype() == &AGAIN;
        error.set_retry(again);
        if let Some(cell) = ctx.cell()
            && !again
        {
            relay::broke(cell, &error);
        }
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestCtx,
    ) -> FailToProxy {
        let gone = FailToProxy {
            error_code: 0,
            can_reuse_downstream: false,
        };
        let Some(cell) = ctx.cell() else { return gone };
        if session.response_written().is_some() || has_left(error) {
            return gone;
        }
        let Some(answer) = &ctx.answer else {
            return gone;
        };
        // Pingora closes the connection after this whatever is returned; the client has to be told.
        session.set_keepalive(None);
        match write_final(session, cell, answer).await {
            Ok(status) => FailToProxy {
                error_code: status,
                can_reuse_downstream: false,
            },
            Err(_) => gone,
        }
    }

    async fn logging(&self, _session: &mut Session, error: Option<&Error>, ctx: &mut RequestCtx) {
        let Some(cell) = ctx.cell() else { return };
        if !cell.has_ended() {
            let _ = cell.feed(match error {
                _ if cell.end_seen() => Event::StreamEnded(StreamEnd::Complete),
                None if cell.has_committed() => Event::StreamEnded(StreamEnd::Complete),
                Some(error) if has_left(error) => Event::ClientGone,
                _ => Event::Dropped,
            });
        }
        cell.report_end();
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &RequestCtx,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &RequestCtx, _error: &Error) -> bool {
        // The access log tells how each operation ended.
        true
    }

    fn request_summary(&self, session: &Session, _ctx: &RequestCtx) -> String {
        // Path only: a query may carry a credential.
        let header = session.req_header();
        format!("{} {}", header.method, header.uri.path())
    }
}
