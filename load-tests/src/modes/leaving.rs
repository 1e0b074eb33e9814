//! Modes with clients in trouble: e, who leave, and f, who read slowly.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::client::{Ask, Clients, End, HUNG, Leave, exchange, slow_connection};
use super::dice::Dice;
use super::trouble::{SERVICE, TWO_TARGETS};
use super::upstream::{Act, Call, flood_bytes};
use super::wire::Pace;
use super::world::{MIB, Setup, Store, WARM, World};
use super::{Outcome, Plan};

/// Events of a stream, and the pause before each: 160 ms in all, so that there is an inside to leave in.
const EVENTS: u32 = 8;
const EVENT_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of the prompts of e: an upload of several reads.
const PROMPT: usize = 60 << 10;
/// Slow readers of f.
const READERS: u64 = 100;
/// KiB of each stream of f: far more than the buffers on its way.
const STREAM_KIB: u32 = 4096;
/// A reader's window: small, so that what it does not read stays behind, and large enough to read the rest quickly.
const WINDOW: u32 = 32 << 10;
/// A reader's rate: 1 KB each second.
const SLOW: Pace = Pace {
    bytes: 1000,
    pause: Duration::from_secs(1),
};

/// e: a fifth of the clients leave, at a moment drawn from all phases. A third of the operations meet a throttle at the first target, so
/// that some leave between two attempts. Row 0 closes the upstream at once, row 1 reads on for the usage.
pub async fn aborts(plan: &Plan, row: u8) -> io::Result<Outcome> {
    let (label, routing) = match row {
        0 => ("e: 20 % of the clients leave", ""),
        _ => (
            "e: the same, answers read on",
            ", on_client_disconnect: drain",
        ),
    };
    let setup = Setup {
        name: "e",
        label: label.to_owned(),
        routes: format!(
            "\x20 - {{ name: hit, models: [m0], deadline_ms: 20000, targets: [{{ name: t1, provider: one }}, {{ name: t2, provider: two }}], routing: {{ cooldown: {{ max_ms: 0 }}{routing} }} }}\n"
        ),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200],
        kills: false,
    };
    let seed = plan.seed;
    let script = move |call: &Call<'_>| {
        let mut dice = Dice::of(seed, call.id);
        match (call.target, dice.below(3)) {
            _ if call.id.starts_with(WARM) => Act::Answer(SERVICE),
            (1, 0) => Act::Throttle(None),
            (_, _) if dice.percent(30) => Act::Answer(SERVICE * 5),
            _ => Act::Stream(EVENTS, EVENT_PAUSE),
        }
    };
    let world = World::start(plan, setup, Arc::new(script)).await?;
    let clients = Clients::new(world.addr()?);
    let ask = |number| {
        let id = format!("e-{number}");
        let mut dice = Dice::of(seed ^ 1, &id);
        let leave = dice.percent(20).then(|| match dice.below(4) {
            0 => Leave::Upload(dice.below(100)),
            // Around the dispatch, then in the wait, then inside the answer.
            1 => Leave::After(Duration::from_micros(dice.below(2000))),
            2 => Leave::After(Duration::from_millis(dice.below(20))),
            _ => Leave::After(Duration::from_millis(20 + dice.below(150))),
        });
        Ask {
            stream: true,
            prompt: PROMPT,
            leave,
            reset: dice.percent(50),
            ..Ask::plain(id, "m0")
        }
    };
    clients.load(plan.rate, plan.during(), ask).await;
    let ends = clients.finish();
    world.finish(ends).await
}

/// f: readers of 1 KB/s on streams that are written as fast as they are taken. In the end half of them leave, and half read the rest at
/// once, which has to be what was sent, byte for byte in length.
pub async fn slow_readers(plan: &Plan) -> io::Result<Outcome> {
    let setup = Setup {
        name: "f",
        label: format!("f: {READERS} readers of 1 KB/s"),
        routes: TWO_TARGETS.to_owned(),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200],
        kills: false,
    };
    let script = |call: &Call<'_>| match call.id.starts_with("f-slow-") {
        true => Act::Flood(STREAM_KIB),
        false => Act::Answer(SERVICE),
    };
    let mut world = World::start(plan, setup, Arc::new(script)).await?;
    let addr = world.addr()?;
    let clients = Clients::new(addr);
    let begun = tokio::time::Instant::now();
    let until = begun + plan.during();
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        let clients = clients.clone();
        readers.spawn(async move {
            let id = format!("f-slow-{number}");
            let read = read_slowly(addr, &id, until, number.is_multiple_of(2));
            let limit = until - tokio::time::Instant::now() + HUNG;
            let (end, whole) = match tokio::time::timeout(limit, read).await {
                Ok(Ok(ended)) => ended,
                Ok(Err(_)) => (End::Broken, true),
                Err(_) => (End::Hung, true),
            };
            clients.with(|ends| {
                ends.by_id.insert(id, end);
                ends.wrong_lengths += u64::from(!whole);
            });
        });
    }
    let others = |number| Ask::plain(format!("f-{number}"), "m0");
    clients.load(plan.rate, plan.during(), others).await;
    let held = world.gateways.iter().map(|g| g.memory().map(|m| m.now));
    let held: u64 = held.sum::<io::Result<u64>>()?;
    // What is read at once in the end is no part of what is measured.
    world.over();
    while readers.join_next().await.is_some() {}
    let ends = clients.finish();
    world.zero("streams that were not whole", ends.wrong_lengths);
    world.metric("RSS while they read MiB", held as f64 / MIB);
    world.finish(ends).await
}

async fn read_slowly(
    addr: SocketAddr,
    id: &str,
    until: tokio::time::Instant,
    stays: bool,
) -> io::Result<(End, bool)> {
    let mut wire = slow_connection(addr, WINDOW).await?;
    wire.pace_until(SLOW, until);
    let ask = Ask {
        stream: true,
        ..Ask::plain(id.to_owned(), "m0")
    };
    let reading = exchange(&mut wire, &ask);
    if stays {
        let (answer, _) = reading.await?;
        let whole = answer.bytes == flood_bytes(STREAM_KIB);
        return Ok((End::Status(answer.status), whole));
    }
    match tokio::time::timeout_at(until, reading).await {
        Ok(answered) => Ok((End::Status(answered?.0.status), true)),
        Err(_) => Ok((End::Left, true)),
    }
}
