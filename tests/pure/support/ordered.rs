//! An order as one line of text: `north:contract,metered south:contract -west/api_format`. Keys left out read `north.old/expired`.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::api::{Api, ApiSet};
use rondo::core::time::{MonoTime, WallTime};
use rondo::policy::ordering::{Client, Facts, InFull, Ordered, in_full, order};
use rondo::policy::snapshot::Snapshot;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    pub model: &'a str,
    pub api: Api,
    pub headers: Vec<(&'a str, &'a str)>,
    pub client: Client,
    pub stream: bool,
    pub bound: bool,
    pub counts: bool,
    pub conversions: ApiSet,
    pub now: MonoTime,
    pub wall: WallTime,
}

impl Ask<'_> {
    pub fn of(model: &str) -> Ask<'_> {
        Ask {
            model,
            api: Api::OpenaiChat,
            headers: Vec::new(),
            client: Client::Absent,
            stream: false,
            bound: false,
            counts: false,
            conversions: ApiSet::EMPTY,
            now: MonoTime::from_micros(1_000_000),
            wall: WallTime::from_unix_micros(1_800_000_000_000_000),
        }
    }

    pub fn api(self, api: Api) -> Self {
        Self { api, ..self }
    }

    pub fn client(self, name: &str) -> Self {
        let client = Client::Known(name.into());
        Self { client, ..self }
    }
}

impl<'a> Ask<'a> {
    pub fn header(mut self, name: &'a str, value: &'a str) -> Ask<'a> {
        self.headers.push((name, value));
        self
    }
}

/// Asks with everything that is known of it.
pub fn fully<'s>(snapshot: &'s Snapshot, ask: &Ask<'_>, seed: u64) -> InFull<'s> {
    let (full, short) = both(snapshot, ask, seed);
    assert_eq!(
        short.candidates, full.ordered.candidates,
        "the hot path and the full one differ"
    );
    assert_eq!(short.sticky_tries, full.ordered.sticky_tries);
    full
}

fn both<'s>(snapshot: &'s Snapshot, ask: &Ask<'_>, seed: u64) -> (InFull<'s>, Ordered) {
    let get = |name: &str| {
        let found = ask.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_bytes())
    };
    let facts = Facts {
        api: ask.api,
        model: ask.model,
        stream: ask.stream,
        counts_tokens: ask.counts,
        is_bound: ask.bound,
        client: ask.client.clone(),
        header: &get,
        conversions: ask.conversions,
        now: ask.now,
        wall: ask.wall,
    };
    let route = snapshot.route(ask.model).expect("no route for the model");
    let rng = || SmallRng::seed_from_u64(seed);
    (
        in_full(snapshot, route, &facts, &mut rng()),
        order(snapshot, route, &facts, &mut rng()),
    )
}

/// The order as text.
pub fn told(snapshot: &Snapshot, ask: &Ask<'_>, seed: u64) -> String {
    let full = fully(snapshot, ask, seed);
    let route = snapshot.route(ask.model).unwrap();
    let name = |target: usize| &*route.targets[target].name;
    let key = |target: usize, key: usize| {
        let name = route.targets[target].keys[key].name.as_deref();
        name.unwrap_or("-").to_owned()
    };
    let mut words = Vec::new();
    for candidate in full.ordered.candidates.iter() {
        let keys: Vec<String> = candidate
            .keys
            .iter()
            .map(|k| key(candidate.target, *k))
            .collect();
        words.push(format!("{}:{}", name(candidate.target), keys.join(",")));
    }
    for (target, why) in &full.excluded {
        words.push(format!("-{}/{}", name(*target), why.label()));
    }
    for (target, index, why) in &full.keys_excluded {
        words.push(format!(
            "{}.{}/{}",
            name(*target),
            key(*target, *index),
            why.label()
        ));
    }
    words.join(" ")
}
