//! The state that all requests share, and the steps of a request that are not Pingora's.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use parking_lot::Mutex;
use rand::Rng;

use super::body::{self, BodyBounds, BodyError, HeldBody};
use super::credentials::Credential;
use super::ctx::{Operation, RequestCtx, Requester};
use super::downstream::Downstream;
use super::host::{OperationFacts, Stamp};
use super::operation::{OperationCell, Surroundings};
use super::peer::KnownPeer;
use super::prepared::{NoToken, Prepared};
use super::refuse::{Refused, nobody};
use super::upgrade;
use super::upstream::AttemptSpec;
use crate::core::api::ApiSet;
use crate::core::time::MonoTime;
use crate::executor::effect::{Begin, Next};
use crate::executor::event::Event;
use crate::executor::plan::Plan;
use crate::policy::aws::AwsIdentity;
use crate::policy::buffered::BufferedBytes;
use crate::policy::clients::ClientFull;
use crate::policy::identity::Identity;
use crate::policy::ordering::{self, Client, Facts};
use crate::policy::overload::{Occupancy, Overload, SlowPhase};
use crate::policy::provider::Provider;
use crate::policy::route::Route;
use crate::policy::seats::{Seat, Seats};
use crate::providers::answer::RequestTraits;
use crate::providers::client_headers::{caller_retry, client_timeout, credentials};
use crate::providers::envelope::{GatewayCode, GatewayError};
use crate::providers::hosted::{self, Hosted};
use crate::providers::inbound::Operation as Asked;
use crate::providers::outbound::{PathParts, splice};
use crate::providers::outbound_headers::{
    HeaderError, Prepared as HeaderParts, add_own, handshake_headers, request_headers,
};
use crate::providers::planning;
use crate::providers::request_style::target_path;
use crate::providers::scan::{self, Scan};
use crate::providers::signing::{Unsigned, add_signature};

type Headers = Vec<(HeaderName, HeaderValue)>;

/// Everything that requests share.
pub struct Gateway {
    /// The current configuration with its providers ready.
    pub config: ArcSwap<Prepared>,
    /// Clock, observer, life cycle.
    pub around: Surroundings,
    /// The process's account of held bodies.
    pub buffered: Arc<BufferedBytes>,
    /// What is under way, as far as it is counted in seats.
    pub occupancy: Arc<Occupancy>,
    /// Connections that are being told that there are too many.
    pub turned_away: Arc<Seats>,
}

/// A request with its body, on its way to become an operation.
pub(super) struct Read<'a> {
    pub asked: &'a Asked<'a>,
    pub scan: Scan,
    pub model: Box<str>,
    pub held: HeldBody,
    pub upload: Duration,
    /// Who asks, where that was asked for.
    pub client: Option<Client>,
}

impl Gateway {
    /// Reads the request, finds its route and begins the operation. The first step is then waiting in the operation's cell.
    pub async fn admit(
        &self,
        client: &mut Downstream,
        asked: &Asked<'_>,
        who: &Requester,
        ctx: &mut RequestCtx,
    ) -> Result<Next, Refused> {
        let config = self.config.load_full();
        // First of all, as the cheapest of all: whoever it is, and whatever is wrong with it.
        let max = config.snapshot.server.in_flight_max;
        let Some(seat) = self.occupancy.operations.take(max) else {
            return Err(Refused::full(self.overloaded(), Overload::InFlight));
        };
        ctx.seats.push(seat);
        let shown = check_client(&config, client.head())?;
        let seat = shown
            .as_ref()
            .map(|client| config.snapshot.clients.seat(client));
        match seat.transpose() {
            Ok(seat) => ctx.seats.extend(seat.flatten()),
            Err(ClientFull) => {
                let overload = Overload::ClientInFlight;
                return Err(Refused::full(GatewayCode::ClientLimit, overload));
            }
        }
        if asked.api.is_socket() {
            let read = Read {
                client: shown,
                ..upgrade::read(self, client, asked)?
            };
            return self.begin(config, read, client.head(), who, ctx);
        }
        // A path of Gemini or Bedrock names the model: an unknown one is refused before the body is read.
        if let Some(model) = &asked.path_model {
            find_route(&config, model)?;
        }
        let held = self.read_body(client, &config).await?;
        let upload = self.around.clock.mono().since(who.started.mono);
        let content_type = value(&client.head().headers, "content-type");
        let scan = scan::read(asked.api, content_type, &held.bytes)
            .map_err(|e| Refused::with(GatewayError::from(e)))?;
        let model = match (&asked.path_model, &scan.model) {
            (Some(model), _) => model.as_ref().into(),
            (None, Some(model)) => model.clone(),
            (None, None) => return Err(Refused::plain(GatewayCode::ModelMissing)),
        };
        let read = Read {
            asked,
            scan,
            model,
            held,
            upload,
            client: shown,
        };
        self.begin(config, read, client.head(), who, ctx)
    }

    /// A seat for one more client connection.
    pub(super) fn connection(&self) -> Option<Seat> {
        let max = self.config.load().snapshot.server.connections_max;
        self.occupancy.connections.take(max)
    }

    /// How long a write to a client may wait.
    pub(super) fn client_write_timeout(&self) -> Duration {
        self.config.load().snapshot.server.client_write_timeout
    }

    /// What is said to who finds no room: that it is the moment, or that this process will not have any.
    pub(super) fn overloaded(&self) -> GatewayCode {
        match self.around.lifecycle.is_draining() {
            true => GatewayCode::ShuttingDown,
            false => GatewayCode::Overloaded,
        }
    }

    async fn read_body(
        &self,
        client: &mut Downstream,
        config: &Prepared,
    ) -> Result<HeldBody, Refused> {
        let length = client.length().transpose();
        let length = length.map_err(|_| Refused::plain(GatewayCode::InvalidRequest))?;
        let server = &config.snapshot.server;
        let bounds = BodyBounds {
            size_max: server.request_body_max,
            held_max: server.buffered_bytes_max,
            pace: server.upload_pace(),
            account: &self.buffered,
        };
        // Refused by its length, or for want of room: the client that waits for "100 Continue" need not send the body.
        let reservation = body::reserve(length, &bounds).map_err(|error| self.unread(error))?;
        if client.expects() && !client.is_body_read() {
            let told = client.want_body(server.client_write_timeout).await;
            told.map_err(Refused::gone)?;
        }
        let read = body::read(client, length, reservation, &bounds).await;
        read.map_err(|error| self.unread(error))
    }

    /// The refusal of a request whose body was not read, or not to its end.
    fn unread(&self, error: BodyError) -> Refused {
        match error {
            BodyError::TooLarge => Refused::plain(GatewayCode::RequestTooLarge),
            BodyError::NoCapacity => Refused::full(self.overloaded(), Overload::BufferedBytes),
            BodyError::TooSlow => {
                self.around.observer.slow_client(SlowPhase::Upload);
                Refused::plain(GatewayCode::RequestTimeout)
            }
            BodyError::Trailers => Refused::with(GatewayError::new(
                GatewayCode::InvalidRequest,
                "fields behind the body (trailers) are not taken",
            )),
            BodyError::Gone(error) => Refused::gone(error),
        }
    }

    fn begin(
        &self,
        config: Arc<Prepared>,
        read: Read<'_>,
        header: &Parts,
        who: &Requester,
        ctx: &mut RequestCtx,
    ) -> Result<Next, Refused> {
        let (route_index, mut route) = find_route(&config, &read.model)?;
        if read.asked.api.is_socket() {
            route = Arc::new(planning::for_handshake(&route));
        }
        let Read {
            asked,
            scan,
            model,
            held,
            upload,
            client,
        } = read;
        let traits = RequestTraits {
            api: asked.api,
            stream: asked.stream_by_path.unwrap_or(scan.stream),
            side_effects: scan.side_effects,
        };
        let headers = &header.headers;
        let binding = planning::binding(&scan, &model, |name| headers.contains_key(name));
        let client = match client {
            Some(client) => client,
            None if route.policy.asks_who() => identify(&config, header),
            None => Client::Absent,
        };
        let client_key = match &client {
            Client::Known(name) => Some(Arc::clone(name)),
            Client::Unknown(_) | Client::Absent => None,
        };
        let facts = Facts {
            api: asked.api,
            model: &model,
            stream: traits.stream,
            counts_tokens: planning::counts_tokens(asked.api, asked.verb),
            is_bound: binding.is_some(),
            client,
            header: &|name| value(headers, name),
            conversions: ApiSet::EMPTY,
            now: who.started.mono,
            wall: who.started.wall,
        };
        let ordered = ordering::order(&config.snapshot, &route, &facts, &mut rand::rng());
        if ordered.candidates.is_empty() {
            let found = ordering::in_full(&config.snapshot, &route, &facts, &mut rand::rng());
            return Err(nobody(&route, asked.api, &found.excluded));
        }
        let plan = Plan {
            candidates: ordered.candidates,
            sticky_tries: ordered.sticky_tries,
            pin: ordered.pin,
            binding,
            caller_retry: caller_retry(|name| value(headers, name)),
            caller_owns_retries: planning::caller_owns_retries(&config.snapshot, &route),
            began: who.started.mono,
            deadline: deadline(&route, headers, who.started),
            tokens: planning::estimated_tokens(held.bytes.len(), scan.length_max),
            held_bytes: u64::try_from(held.bytes.len()).unwrap_or(u64::MAX),
            route: Arc::clone(&route),
        };
        let deadline = plan.deadline;
        let facts = OperationFacts {
            id: Arc::clone(&who.id),
            snapshot: Arc::clone(&config.snapshot),
            route,
            route_index,
            api: asked.api,
            public_model: Arc::from(model),
            client_key,
            stream: traits.stream,
            started: who.started,
            request_bytes: u64::try_from(held.bytes.len()).unwrap_or(u64::MAX),
        };
        let seed = rand::rng().random();
        let cell = OperationCell::new(facts, plan, self.around.clone(), seed, upload);
        ctx.operation = Some(Operation {
            cell: Arc::clone(&cell),
            config,
            body: held.bytes,
            scan,
            verb: asked.verb,
            version: asked.version,
            query: header.uri.query().map(Box::from),
            deadline,
            traits,
            reservation: held.reservation,
        });
        Ok(cell.feed(Event::Admitted))
    }

    /// Where a candidate is reached. `None` when its name does not resolve.
    pub async fn peer(&self, operation: &Operation, begin: Begin) -> Option<Arc<KnownPeer>> {
        let target = operation.cell.facts.route.targets.get(begin.target)?;
        operation
            .config
            .providers
            .get(target.provider)?
            .peer()
            .await
    }

    /// Prepares a fresh request for a candidate. `None` when there is no credential for it, or none that a header can carry.
    pub fn prepare(
        &self,
        operation: &Operation,
        begin: Begin,
        peer: Arc<KnownPeer>,
        client: &HeaderMap,
    ) -> Option<AttemptSpec> {
        let facts = &operation.cell.facts;
        let target = facts.route.targets.get(begin.target)?;
        let provider = Arc::clone(operation.config.providers.get(target.provider)?);
        let model = target.model.as_deref().unwrap_or(&facts.public_model);
        let body = match Hosted::of(provider.adapter.style, facts.api) {
            Some(host) => hosted::splice(&operation.body, host, &hosted::betas(client)),
            None => splice(&operation.body, &operation.scan, model),
        };
        let path = target_path(
            provider.adapter.style,
            &provider.provider.azure,
            &PathParts {
                api: facts.api,
                verb: operation.verb,
                version: operation.version,
                base_path: &provider.provider.base.path,
                model,
                stream: operation.traits.stream,
                query: operation.query.as_deref(),
            },
        );
        let credential = provider.credential();
        let credential = credential
            .inspect_err(|NoToken| {
                log::debug!("provider {}: no credential", provider.provider.name);
            })
            .ok()?;
        let parts = HeaderParts {
            api: facts.api,
            request_id: &facts.id,
            auth: provider.auth(),
            secret: match &credential {
                Some(Credential::Token(token)) => Some(token),
                Some(Credential::Aws(_)) => None,
                None => provider.provider.keys.get(begin.key).map(|key| &key.secret),
            },
            content_length: body.len(),
        };
        let headers = client
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let (headers, peer) = if facts.api.is_socket() {
            let headers: Vec<_> = headers.collect();
            (handshake_headers(&headers, &parts), upgrade::peer(&peer))
        } else {
            (request_headers(headers, &parts), peer)
        };
        let signer = match (&credential, &provider.provider.identity) {
            (Some(Credential::Aws(session)), _) => Some(&**session),
            (_, Identity::Aws(lasting)) => Some(lasting),
            _ => None,
        };
        let unsigned = Unsigned {
            path: &path,
            authority: &provider.provider.base.authority,
            body: &body,
        };
        let headers = headers
            .and_then(|headers| self.complete(headers, &provider.provider, signer, &unsigned));
        let headers = headers
            .inspect_err(|error| log::error!("provider {}: {error}", provider.provider.name))
            .ok()?;
        Some(AttemptSpec {
            cell: Arc::clone(&operation.cell),
            provider,
            peer,
            path,
            headers,
            body: Mutex::new(Some(body)),
            traits: operation.traits,
            deadline: operation.deadline,
        })
    }

    /// Adds what the configuration says of the provider: its own headers, and its signature.
    fn complete(
        &self,
        mut headers: Headers,
        provider: &Provider,
        signer: Option<&AwsIdentity>,
        unsigned: &Unsigned<'_>,
    ) -> Result<Headers, HeaderError> {
        add_own(&mut headers, &provider.own_headers)?;
        if let Some(who) = signer {
            add_signature(&mut headers, unsigned, who, self.around.clock.wall())?;
        }
        Ok(headers)
    }
}

/// Who asks, where clients have keys; whoever has none is refused where one is required, before anything is read.
pub(super) fn check_client(config: &Prepared, header: &Parts) -> Result<Option<Client>, Refused> {
    let clients = &config.snapshot.clients;
    if !clients.required && !clients.has_keys() {
        return Ok(None);
    }
    let client = identify(config, header);
    match client {
        Client::Unknown(_) | Client::Absent if clients.required => {
            Err(Refused::plain(GatewayCode::ClientKeyRequired))
        }
        client => Ok(Some(client)),
    }
}

fn identify(config: &Prepared, header: &Parts) -> Client {
    let shown = credentials(|name| value(&header.headers, name), header.uri.query());
    config.snapshot.clients.identify(shown)
}

/// The route's deadline, shortened by the client's own timeout (R-B4).
fn deadline(route: &Route, headers: &HeaderMap, started: Stamp) -> MonoTime {
    let client = client_timeout(|name| value(headers, name));
    started
        .mono
        .after(client.map_or(route.deadline, |client| client.min(route.deadline)))
}

fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    headers.get(name).map(|value| value.as_bytes())
}

fn find_route(config: &Prepared, model: &str) -> Result<(usize, Arc<Route>), Refused> {
    let index = config.snapshot.models.find(model);
    let found = index.and_then(|index| Some((index, config.snapshot.routes.get(index)?)));
    match found {
        Some((index, route)) => Ok((index, Arc::clone(route))),
        None => {
            let sentence = format!("no route serves the model {model:?}");
            Err(Refused::with(GatewayError::new(
                GatewayCode::ModelNotFound,
                &sentence,
            )))
        }
    }
}
