//! A request from its head to its end: recognised, admitted or refused, answered, reported.
//!
//! Not here: how heads come (`front`), what makes a request an operation (`gateway`), its attempts (`relay`). Invariant: every request whose
//! head was read is told to the observer once, however it ends.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use pingora_core::Result;
use pingora_http::ResponseHeader;
use rand::Rng;

use super::body;
use super::ctx::{RequestCtx, Requester, Told};
use super::downstream::{Downstream, Piece};
use super::gateway::{Gateway, check_client};
use super::operation::{CLIENT_CLOSED_REQUEST, OperationCell};
use super::refuse::Refused;
use super::relay::has_left;
use super::respond::{self, Answer};
use super::upstream::AttemptConnector;
use crate::core::api::Family;
use crate::core::time::WallTime;
use crate::executor::effect::{FinalAnswer, Next};
use crate::executor::event::{Event, StreamEnd};
use crate::policy::route::ModelPattern;
use crate::providers::client_headers::sane_request_id;
use crate::providers::envelope::GatewayCode;
use crate::providers::inbound::{Inbound, family_of, recognise};
use crate::providers::models_list::models_list;

/// The data plane. Cheap to clone; one serves each listener.
#[derive(Clone)]
pub struct DataPlane {
    pub(super) gateway: Arc<Gateway>,
    pub(super) connector: AttemptConnector,
}

impl DataPlane {
    /// The data plane over the shared state, and the connections of its attempts.
    pub fn new(gateway: Arc<Gateway>, connector: AttemptConnector) -> DataPlane {
        DataPlane { gateway, connector }
    }

    /// Serves a request whose head was read.
    pub(super) async fn serve(&self, client: &mut Downstream) {
        let mut ctx = RequestCtx::open(&self.gateway.around);
        let mut who = self.requester(client);
        let served = self.answer(client, &mut ctx, &mut who).await;
        let Some(cell) = ctx.cell() else { return };
        if !cell.has_ended() {
            let _ = cell.feed(match served {
                _ if cell.end_seen() => Event::StreamEnded(StreamEnd::Complete),
                Ok(()) if cell.has_committed() => Event::StreamEnded(StreamEnd::Complete),
                Err(error) if has_left(&error) => Event::ClientGone,
                _ => Event::Dropped,
            });
        }
        cell.report_end();
    }

    /// Tells a client that its head cannot be taken.
    pub(super) async fn refuse_head(&self, client: &mut Downstream, refused: Refused) {
        let mut ctx = RequestCtx::open(&self.gateway.around);
        let who = self.requester(client);
        let _ = self.refuse(client, &mut ctx, &who, refused).await;
    }

    async fn answer(
        &self,
        client: &mut Downstream,
        ctx: &mut RequestCtx,
        who: &mut Requester,
    ) -> Result<()> {
        let head = client.head();
        let path = head.uri.path().to_owned();
        let refused = match recognise(head.method.as_str(), &path) {
            Inbound::Operation(asked) => {
                who.api = Some(asked.api);
                match self.gateway.admit(client, &asked, who, ctx).await {
                    Err(refused) => refused,
                    Ok(Next::Answer(answer)) => match ctx.cell() {
                        Some(cell) => return write_final(client, cell, &answer).await,
                        None => return Ok(()),
                    },
                    Ok(_) => match &mut ctx.operation {
                        Some(operation) => return self.relay(client, operation).await,
                        None => return Ok(()),
                    },
                }
            }
            Inbound::ListModels => {
                let config = self.gateway.config.load_full();
                match check_client(&config, head) {
                    Ok(_) => return self.list_models(client, who).await,
                    Err(refused) => refused,
                }
            }
            Inbound::MethodNotAllowed { .. } => Refused::plain(GatewayCode::MethodNotAllowed),
            Inbound::NotFound => Refused::plain(GatewayCode::PathNotFound),
        };
        self.refuse(client, ctx, who, refused).await
    }

    fn requester(&self, client: &Downstream) -> Requester {
        let sent = client.header("x-request-id").map(|value| value.as_bytes());
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
        client: &mut Downstream,
        ctx: &mut RequestCtx,
        who: &Requester,
        refused: Refused,
    ) -> Result<()> {
        let now = self.gateway.around.clock.stamp();
        let Some(error) = refused.error else {
            let told = Told {
                route: refused.route,
                status: CLIENT_CLOSED_REQUEST,
                code: "client_gone",
                overload: None,
            };
            ctx.refused(who, told, now);
            client.close_after();
            return match refused.broke {
                Some(error) => Err(error.into_down()),
                None => Ok(()),
            };
        };
        let told = Told {
            route: refused.route,
            status: refused.status.unwrap_or_else(|| error.status()),
            code: error.code().label(),
            overload: refused.overload,
        };
        let status = told.status;
        ctx.refused(who, told, now);
        let family = who
            .api
            .map_or_else(|| family(client.head()), |api| api.family());
        let mut answer = respond::gateway_error(family, &error, &who.id)?;
        answer.header.set_status(status)?;
        if error.code() == GatewayCode::MethodNotAllowed {
            let allow = match recognise("", client.head().uri.path()) {
                Inbound::MethodNotAllowed { allow } => allow,
                _ => "POST",
            };
            answer.header.insert_header("allow", allow)?;
        }
        if matches!(
            error.code(),
            GatewayCode::MethodNotAllowed | GatewayCode::PathNotFound | GatewayCode::ModelNotFound
        ) {
            body::skip(client).await;
        }
        // Whoever finds no room comes again, and a new connection costs both sides more than a small body. A drain wants it closed.
        let passes = refused.overload.is_some()
            && error.code() != GatewayCode::ShuttingDown
            && body::is_small(client);
        let is_cut = !passes && !client.is_body_read() || refused.is_last;
        if is_cut {
            client.close_after();
            client.forget();
        }
        self.write(client, answer).await?;
        if passes {
            // After its answer: who is told at once need not have sent all first.
            body::skip(client).await;
        }
        // The connection lingers for what still comes; but who has sent nothing for so long will not send now.
        if let Downstream::Http1(client) = client
            && error.code() == GatewayCode::RequestTimeout
        {
            client.break_off();
        }
        Ok(())
    }

    async fn list_models(&self, client: &mut Downstream, who: &Requester) -> Result<()> {
        let config = self.gateway.config.load_full();
        let routes = config.snapshot.routes.iter();
        let names: Vec<&str> = routes
            .flat_map(|route| &route.models)
            .filter_map(|pattern| match pattern {
                ModelPattern::Exact(name) => Some(&**name),
                ModelPattern::Prefix(_) => None,
            })
            .collect();
        let body = Bytes::from(models_list(family(client.head()), &names, 0));
        let mut header = ResponseHeader::build(200, Some(4))?;
        header.insert_header("content-type", "application/json")?;
        header.insert_header("content-length", body.len())?;
        header.insert_header("x-request-id", &*who.id)?;
        body::skip(client).await;
        if !client.is_body_read() {
            client.close_after();
        }
        self.write(client, Answer { header, body }).await
    }

    /// Writes an answer of the gateway that is no operation's.
    async fn write(&self, client: &mut Downstream, answer: Answer) -> Result<()> {
        let time = self.gateway.client_write_timeout();
        client.write(piece(client, answer), time).await
    }
}

/// The format of a request whose path names none, by its path and headers.
pub(super) fn family(head: &Parts) -> Family {
    let has = |name: &str| head.headers.contains_key(name);
    family_of(
        head.uri.path(),
        has("anthropic-version").into(),
        has("x-goog-api-key").into(),
    )
}

/// A whole answer.
pub(super) fn piece(client: &Downstream, answer: Answer) -> Piece {
    // An answer to HEAD tells of a body and has none.
    let has_body = !answer.body.is_empty() && client.head().method != Method::HEAD;
    Piece {
        header: Some(Box::new(answer.header)),
        parts: has_body.then_some(answer.body).into_iter().collect(),
        trailers: None,
        ends: true,
    }
}

/// Writes the final answer of an operation that no attempt delivers, and settles it.
pub(super) async fn write_final(
    client: &mut Downstream,
    cell: &OperationCell,
    answer: &FinalAnswer,
) -> Result<()> {
    let answer = respond::final_answer(cell, answer)?;
    let (status, length) = (answer.header.status.as_u16(), answer.body.len());
    cell.committed(status);
    let time = cell.facts.snapshot.server.client_write_timeout;
    let written = client.write(piece(client, answer), time).await;
    cell.wrote(length, written.is_ok());
    let end = if written.is_ok() {
        StreamEnd::Complete
    } else {
        StreamEnd::ClientGone
    };
    let _ = cell.feed(Event::StreamEnded(end));
    written
}

/// A request id: 48 bits of Unix time in milliseconds, then chance. Ids that begin with the time are written at the end of a store's index.
pub(super) fn made_id(now: WallTime) -> String {
    let millis = u128::try_from(now.unix_micros() / 1_000).unwrap_or_default();
    let chance = rand::rng().random::<u128>() >> 48;
    format!("{:032x}", (millis << 80) | chance)
}
