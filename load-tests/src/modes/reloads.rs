//! Mode g: the configuration changes and is read again under load. Each content is another one, and every third one is broken, so that
//! the last good one has to stay.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::client::{Ask, Clients};
use super::trouble::SERVICE;
use super::upstream::{Act, Call};
use super::world::{Setup, Store, World};
use super::{Outcome, Plan};

/// Time for the last reload to be counted.
const COUNTED_MAX: Duration = Duration::from_secs(5);

fn routes(number: u64) -> String {
    // The order of the targets, the deadline, the models' names and the number of routes change.
    let (first, second) = if number.is_multiple_of(2) {
        ("one", "two")
    } else {
        ("two", "one")
    };
    let more: String = (0..number % 4)
        .map(|n| format!("\x20 - {{ name: more{n}, models: [more{n}], targets: [{{ name: t, provider: one }}] }}\n"))
        .collect();
    format!(
        "\x20 - {{ name: hit, models: [m0, \"x{number}-*\"], deadline_ms: {}, targets: [{{ name: t-{first}, provider: {first}, model: up-{number} }}, {{ name: t-{second}, provider: {second} }}] }}\n{more}",
        20_000 + number % 7
    )
}

/// g: reload after reload.
pub async fn run(plan: &Plan) -> io::Result<Outcome> {
    let setup = Setup {
        name: "g",
        label: format!("g: reload every {} ms", plan.between_reloads().as_millis()),
        routes: routes(0),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[200],
        kills: false,
    };
    let script = |_: &Call<'_>| Act::Answer(SERVICE * 3);
    let mut world = World::start(plan, setup, Arc::new(script)).await?;
    let clients = Clients::new(world.addr()?);
    let loading = {
        let clients = clients.clone();
        let (rate, length) = (plan.rate, plan.during());
        tokio::spawn(async move {
            let ask = |number| Ask::plain(format!("g-{number}"), "m0");
            clients.load(rate, length, ask).await;
        })
    };
    let (mut good, mut bad) = (0_u64, 0_u64);
    let until = tokio::time::Instant::now() + plan.during();
    while tokio::time::Instant::now() < until {
        let number = good + bad + 1;
        let broken = number.is_multiple_of(3);
        reload(&world, number, broken).await?;
        good += u64::from(!broken);
        bad += u64::from(broken);
        counted(&world, good, bad).await;
        tokio::time::sleep(plan.between_reloads()).await;
    }
    loading.await.map_err(io::Error::other)?;
    let (seen_good, seen_bad) = results(&world).await?;
    world.metric("reloads", seen_good as f64);
    world.metric("reloads refused", seen_bad as f64);
    world.zero(
        "good files that were not taken",
        good.saturating_sub(seen_good),
    );
    world.zero(
        "broken files that were not refused",
        bad.saturating_sub(seen_bad),
    );
    let ends = clients.finish();
    world.finish(ends).await
}

async fn reload(world: &World, number: u64, broken: bool) -> io::Result<()> {
    for gateway in &world.gateways {
        let mut text = world.config(&gateway.place, &routes(number));
        if broken {
            text.push_str("\x20 - { name: hit, models: [], targets: [nowhere] }\n");
        }
        // Whole or not at all, as an editor would.
        let new = gateway.place.config.with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &gateway.place.config)?;
        gateway.signal("HUP").await?;
    }
    Ok(())
}

/// Waits until so many were counted; signals that come faster may be taken as one.
async fn counted(world: &World, good: u64, bad: u64) {
    let looking = async {
        while results(world).await.ok() != Some((good, bad)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(COUNTED_MAX, looking).await;
}

async fn results(world: &World) -> io::Result<(u64, u64)> {
    let (mut good, mut bad) = (0.0, 0.0);
    for gateway in &world.gateways {
        let metrics = gateway.metrics().await?;
        let of = |result| metrics.sum("rondo_config_reloads_total", result);
        good += of("success").unwrap_or(0.0);
        bad += of("failure").unwrap_or(0.0);
    }
    Ok((good as u64, bad as u64))
}
