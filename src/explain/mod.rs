//! The plan for a request that is not sent: `rondo explain`.
//!
//! Not here: decisions. Who is tried in which order is asked of [`ordering`](crate::policy::ordering), what follows a failure of
//! [`decide`](crate::core::decision::decide), budgets are read from the compiled route. Invariants: nothing is sent and no clock is read;
//! keys appear by name, never by their secret; what depends on the moment is told for a running process, whose state is in its snapshot,
//! and as a condition where there is none.

mod ask;
mod budgets;
mod json;
mod key_places;
mod live;
mod moves;
mod places;
mod policy;
mod ranks;
mod rounds;
mod text;

use std::sync::Arc;

use crate::core::api::Api;
use crate::core::time::WallTime;
use crate::policy::route::{ModelPattern, Route};
use crate::policy::snapshot::Snapshot;
use crate::providers::inbound::is_model_name;
use crate::providers::planning;

pub use ask::{Asked, Because, Header};
pub use budgets::{Budgets, WorstCase};
pub use json::to_json;
pub use key_places::KeyPlace;
pub use live::{
    BudgetState, KeyState, LimitsState, Live, Memory, NextTry, ProbeState, RouteState, TargetState,
};
pub use moves::{Failure, Follows, Move};
pub use places::{Candidate, Excluded};
pub use policy::{ClientTold, Mode, Policy, RuleTold, Setting, Verdict};
pub use ranks::{DecidedBy, Rank};
pub use rounds::{Objection, Possible, SecondRound};
pub use text::to_text;

use crate::config::distance;

/// Names that are offered for one that no route has.
const NEAREST_MAX: usize = 8;

/// A request as the command line or the admin plane describes it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The public model name.
    pub model: &'a str,
    /// The API format, when it is given.
    pub api: Option<Api>,
    /// The body, when there is one.
    pub body: Option<&'a [u8]>,
    /// Whether a stream is asked for beside what the body says.
    pub stream: bool,
    /// Headers of the client.
    pub headers: &'a [Header],
    /// The name of the client's key, in place of what headers show.
    pub client_key: Option<&'a str>,
    /// The time for which keys expire.
    pub wall: WallTime,
}

/// Everything that is known about such a request before it is sent.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The request as it is understood.
    pub asked: Asked,
    /// The route.
    pub route: Arc<str>,
    /// The public name or prefix that led to it.
    pub pattern: ModelPattern,
    /// What orders its candidates.
    pub policy: Policy,
    /// Places in which targets that can serve it stand, in order.
    pub candidates: Vec<Candidate>,
    /// Those of them between which no priority decides.
    pub ranks: Vec<Rank>,
    /// Targets that cannot.
    pub excluded: Vec<Excluded>,
    /// Its limits.
    pub budgets: Budgets,
    /// What follows each kind of failure.
    pub moves: Vec<Move>,
    /// What ends it, in sentences.
    pub ends: Vec<String>,
    /// Whether there can be a second round.
    pub second_round: SecondRound,
    /// The most that it can cost.
    pub worst_case: WorstCase,
    /// What holds at the moment, if a running process is asked.
    pub live: Option<RouteState>,
}

impl Explanation {
    /// Whether some target can serve the request. If none can, the gateway answers 503 without a send.
    pub fn is_servable(&self) -> bool {
        !self.candidates.is_empty()
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    /// No route has the model: the gateway would answer 404.
    #[error("{}", unknown(model, nearest))]
    UnknownModel {
        /// The model.
        model: String,
        /// Public names like it, the nearest first.
        nearest: Vec<String>,
    },
    /// No client has a key of this name.
    #[error("{}", unknown_client(name, known))]
    UnknownClientKey {
        /// The name.
        name: String,
        /// Those that are configured.
        known: Vec<String>,
    },
    /// The body cannot be served: the gateway would answer 400.
    #[error("the gateway would refuse this body: 400 {code}: {what}")]
    Body {
        /// The code that the client would get.
        code: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

fn unknown(model: &str, nearest: &[String]) -> String {
    let names = match nearest {
        [] => "the configuration has no routes".to_owned(),
        names => format!("the nearest names are: {}", names.join(", ")),
    };
    format!("no route serves the model {model:?} (the gateway would answer 404); {names}")
}

fn unknown_client(name: &str, known: &[String]) -> String {
    let names = match known {
        [] => "client_keys names none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    format!("no client key is called {name:?}; {names}")
}

/// Explains what would be done with a request; for a running process at this moment, else for one of which nothing is known.
pub fn explain(
    snapshot: &Snapshot,
    request: &Request<'_>,
    live: Option<Live>,
) -> Result<Explanation, Unexplained> {
    let model = request.model;
    let found = snapshot.route(model).filter(|_| is_model_name(model));
    let Some(route) = found else {
        let (model, nearest) = (model.to_owned(), nearest(snapshot, model));
        return Err(Unexplained::UnknownModel { model, nearest });
    };
    let asked = ask::read(snapshot, route, request)?;
    let of_handshake = asked
        .api
        .is_socket()
        .then(|| planning::for_handshake(route));
    let route = of_handshake.as_ref().unwrap_or(route);
    let order = policy::order(snapshot, route, &asked, request, live)?;
    let found = &order.found;
    let mut effective = Route::clone(route);
    effective.routing.sticky_tries = found.ordered.sticky_tries;
    let (candidates, excluded) = places::places(snapshot, route, &asked, found, live);
    let ranks = ranks::ranks(route, found);
    let reach = places::reach(route, &asked, candidates.len());
    let state =
        |live| live::route_state(snapshot.generation, route, found, &candidates, reach, live);
    let live = live.map(state);
    let policy = policy::told(route, &effective.routing, order);
    let route = &effective;
    let second_round = rounds::second_round(route, &asked, &candidates, reach);
    let budgets = budgets::budgets(route, &asked);
    let worst_case = budgets::worst_case(route, &budgets, &candidates, reach, &second_round);
    Ok(Explanation {
        route: Arc::clone(&route.name),
        policy,
        pattern: pattern(&route.models, model),
        moves: moves::moves(&route.routing, reach),
        ends: moves::ends(&route.routing, &budgets, &asked),
        asked,
        candidates,
        ranks,
        live,
        excluded,
        budgets,
        second_round,
        worst_case,
    })
}

/// The pattern by which the route was found, as [`ModelIndex`](crate::policy::snapshot::ModelIndex) finds it.
fn pattern(patterns: &[ModelPattern], model: &str) -> ModelPattern {
    let length = |pattern: &&ModelPattern| match pattern {
        ModelPattern::Exact(name) if **name == *model => Some(usize::MAX),
        ModelPattern::Prefix(prefix) if model.starts_with(&**prefix) => Some(prefix.len()),
        ModelPattern::Exact(_) | ModelPattern::Prefix(_) => None,
    };
    let best = patterns
        .iter()
        .filter(|pattern| length(pattern).is_some())
        .max_by_key(length);
    best.cloned()
        .unwrap_or_else(|| ModelPattern::Exact(model.into()))
}

/// Public names and prefixes of all routes, those most like the model first.
fn nearest(snapshot: &Snapshot, model: &str) -> Vec<String> {
    let texts = snapshot
        .routes
        .iter()
        .flat_map(|route| &route.models)
        .map(ModelPattern::text);
    let mut ranked: Vec<(usize, String)> = texts
        .map(|text| (distance(model, text.trim_end_matches('*')), text))
        .collect();
    ranked.sort();
    ranked
        .into_iter()
        .map(|(_, text)| text)
        .take(NEAREST_MAX)
        .collect()
}
