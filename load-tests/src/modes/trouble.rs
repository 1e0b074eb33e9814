//! Modes with a provider in trouble: a, c and d.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::client::{Ask, Clients};
use super::dice::Dice;
use super::upstream::{Act, Call};
use super::world::{Setup, Store, WARM, World};
use super::{Outcome, Plan};

/// Time of a good answer.
pub const SERVICE: Duration = Duration::from_millis(10);
/// The route of most modes: two targets and every default.
pub const TWO_TARGETS: &str = "\x20 - { name: hit, models: [m0], deadline_ms: 20000, targets: [{ name: t1, provider: one }, { name: t2, provider: two }] }\n";

/// a: the first target throttles always. Row 0 with the default cooldown, which spares most sends to it; row 1 without one, so that each
/// operation meets it.
pub async fn throttled_first(plan: &Plan, row: u8) -> io::Result<Outcome> {
    let (label, routing) = match row {
        0 => ("a: first target throttles", ""),
        _ => (
            "a: the same without cooldown",
            ", routing: { cooldown: { max_ms: 0 } }",
        ),
    };
    let setup = Setup {
        name: "a",
        label: label.to_owned(),
        routes: format!(
            "\x20 - {{ name: hit, models: [m0], deadline_ms: 20000, targets: [{{ name: t1, provider: one }}, {{ name: t2, provider: two }}]{routing} }}\n"
        ),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200],
        kills: false,
    };
    let script = |call: &Call<'_>| match call.target {
        1 if !call.id.starts_with(WARM) => Act::Throttle(Some(1)),
        _ => Act::Answer(SERVICE),
    };
    let world = World::start(plan, setup, Arc::new(script)).await?;
    plain_load(plan, world).await
}

/// c: of the sends, 30 % are reset after the request was read.
pub async fn resets(plan: &Plan) -> io::Result<Outcome> {
    let setup = Setup {
        name: "c",
        label: "c: 30 % resets after the send".to_owned(),
        routes: TWO_TARGETS.to_owned(),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200, 502],
        kills: false,
    };
    let seed = plan.seed;
    let script = move |call: &Call<'_>| {
        let mut dice = Dice::of(seed, call.id);
        match !call.id.starts_with(WARM) && dice.percent(30) {
            true => Act::Reset(Duration::from_millis(dice.below(20))),
            false => Act::Answer(SERVICE),
        }
    };
    let world = World::start(plan, setup, Arc::new(script)).await?;
    plain_load(plan, world).await
}

/// d: of the sends, 1 % are read and never answered.
pub async fn silence(plan: &Plan) -> io::Result<Outcome> {
    let setup = Setup {
        name: "d",
        label: "d: 1 % silent upstreams".to_owned(),
        routes: TWO_TARGETS.to_owned(),
        timeouts: "first_byte_ms: 500",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200, 504],
        kills: false,
    };
    let seed = plan.seed;
    let script = move |call: &Call<'_>| {
        let silent = !call.id.starts_with(WARM) && Dice::of(seed, call.id).percent(1);
        match silent {
            true => Act::Silent,
            false => Act::Answer(SERVICE),
        }
    };
    let world = World::start(plan, setup, Arc::new(script)).await?;
    plain_load(plan, world).await
}

async fn plain_load(plan: &Plan, world: World) -> io::Result<Outcome> {
    let clients = Clients::new(world.addr()?);
    let name = world.setup.name;
    let ask = |number| Ask::plain(format!("{name}-{number}"), "m0");
    clients.load(plan.rate, plan.during(), ask).await;
    let ends = clients.finish();
    world.finish(ends).await
}
