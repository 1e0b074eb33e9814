//! Mode h: three gateways behind a TCP balancer, their records in `strict`. The first is killed under load and started again. Row 0 has
//! plain answers and row 1 streams, with a SQLite file for each gateway; in row 2 they share a PostgreSQL. The steady route goes to the
//! third directly.
//!
//! The balancer takes gateways in turn and moves on when one cannot be connected to: by then nothing was sent. It never sends again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::client::{Ask, Clients, End, Ends};
use super::ledger::Records;
use super::process::Process;
use super::trouble::{SERVICE, TWO_TARGETS};
use super::upstream::{Act, Call};
use super::world::{Setup, Store, WARM, World};
use super::{Outcome, Plan};

const GATEWAYS: usize = 3;
/// How long the killed one is away.
const AWAY: Duration = Duration::from_millis(500);
/// Streams of row 1.
const EVENTS: u32 = 8;
const EVENT_PAUSE: Duration = Duration::from_millis(10);

/// h: one of three is killed and comes back.
pub async fn run(plan: &Plan, row: u8) -> io::Result<Outcome> {
    let streams = row == 1;
    let setup = Setup {
        name: "h",
        label: match row {
            0 => "h: one of three gateways killed".to_owned(),
            1 => "h: the same with streams".to_owned(),
            _ => "h: the same with one PostgreSQL".to_owned(),
        },
        routes: TWO_TARGETS.to_owned(),
        timeouts: "",
        gateways: GATEWAYS,
        store: match row {
            2 => Store::Postgres,
            _ => Store::Strict,
        },
        statuses: &[200],
        kills: true,
    };
    let script = move |call: &Call<'_>| match streams && !call.id.starts_with(WARM) {
        true => Act::Stream(EVENTS, EVENT_PAUSE),
        false => Act::Answer(SERVICE * 3),
    };
    let mut world = World::start(plan, setup, Arc::new(script)).await?;
    let backends = world.gateways.iter().map(|g| g.place.addr).collect();
    let mut balancing = JoinSet::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    balancing.spawn(balance(listener, backends));
    let clients = Clients::new(addr);
    let loading = {
        let clients = clients.clone();
        let (rate, length) = (plan.rate, plan.during());
        tokio::spawn(async move {
            let ask = |number| Ask {
                stream: streams,
                ..Ask::plain(format!("h-{number}"), "m0")
            };
            clients.load(rate, length, ask).await;
        })
    };
    tokio::time::sleep(plan.during() / 3).await;
    let restarted = kill_and_restart(plan, &mut world).await;
    loading.await.map_err(io::Error::other)?;
    restarted?;
    let ends = clients.finish();
    balancing.shutdown().await;
    if world.setup.store == Store::Strict {
        let (survivors, nowhere) = broken_at_survivors(&world, &ends).await?;
        world.zero("answers of the other gateways that broke off", survivors);
        world.metric("broken before a gateway began", nowhere as f64);
    }
    world.finish(ends).await
}

async fn kill_and_restart(plan: &Plan, world: &mut World) -> io::Result<()> {
    let Some(first) = world.gateways.first_mut() else {
        return Err(io::Error::other("no gateway"));
    };
    first.kill().await?;
    tokio::time::sleep(AWAY).await;
    *first = Process::start(&plan.binary, &first.place).await?;
    Ok(())
}

/// Of the broken answers, those whose operation is in a survivor's records, and those that no gateway has begun. The records are read
/// once they have come to rest.
async fn broken_at_survivors(world: &World, ends: &Ends) -> io::Result<(u64, u64)> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut survivors, mut all) = (Records::default(), Records::default());
    for (number, gateway) in world.gateways.iter().enumerate() {
        all.read(&gateway.place.database)?;
        if number > 0 {
            survivors.read(&gateway.place.database)?;
        }
    }
    let broken = ends.by_id.iter().filter(|(_, end)| **end == End::Broken);
    let broken: Vec<&String> = broken.map(|(id, _)| id).collect();
    let at_survivors = broken
        .iter()
        .filter(|id| survivors.operations.contains_key(**id));
    let nowhere = broken
        .iter()
        .filter(|id| !all.operations.contains_key(**id));
    Ok((at_survivors.count() as u64, nowhere.count() as u64))
}

async fn balance(listener: TcpListener, backends: Vec<SocketAddr>) {
    let backends: Arc<[SocketAddr]> = backends.into();
    let mut connections = JoinSet::new();
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        turn += 1;
        connections.spawn(pass(client, turn, Arc::clone(&backends)));
    }
}

async fn pass(mut client: TcpStream, turn: usize, backends: Arc<[SocketAddr]>) {
    for addr in backends
        .iter()
        .cycle()
        .skip(turn % backends.len().max(1))
        .take(backends.len())
    {
        if let Ok(mut gateway) = TcpStream::connect(addr).await {
            let _ = client.set_nodelay(true);
            let _ = gateway.set_nodelay(true);
            let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
            return;
        }
    }
}
