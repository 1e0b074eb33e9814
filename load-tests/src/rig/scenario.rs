//! A scenario as it is written in `scenarios/*.yaml`, and a peer as in `peers/peers.yaml`.
//!
//! Strict: an unknown key is an error that names the file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::upstream::Answer;
use crate::report::raw::Kind;

/// One claim to be measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its file's name without the extension, too.
    pub name: String,
    /// How the report shows it.
    pub kind: Kind,
    /// One sentence: what is measured.
    pub what: String,
    /// Systems by name: `direct`, `rondo`, and names of `peers.yaml`.
    pub systems: Vec<String>,
    /// Programs for whose sake it is run: it is left out where none of them is installed.
    #[serde(default)]
    pub only_with: Vec<String>,
    /// Seconds of load before the first round.
    #[serde(default = "warm_secs")]
    pub warm_secs: f64,
    /// What is sent, and when.
    pub load: Load,
    /// What the upstreams answer.
    pub upstreams: Targets,
    /// What Rondo's configuration has beside the rig's own.
    #[serde(default)]
    pub gateway: Overrides,
    /// Rondo's routes, with one model each; all of them are asked for in turn.
    #[serde(default = "one")]
    pub routes: usize,
    /// Rondo at growing sizes instead of systems side by side.
    #[serde(default)]
    pub sizes: Vec<Size>,
    /// Sentences for the report.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The two targets of the one route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Targets {
    /// Tried first.
    pub primary: Answer,
    /// Tried when the first one did not serve.
    pub backup: Answer,
}

/// What is sent, and when. Seconds are those of the full form; the short form takes half.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// Kept connections, each with one request in flight.
    Closed {
        /// Connections.
        conns: usize,
        /// Length.
        secs: f64,
        /// Bytes of a request's body.
        body: usize,
        /// Whether streams are asked for.
        #[serde(default)]
        stream: bool,
    },
    /// A fixed rate over kept connections.
    Open {
        /// Requests a second.
        rate: f64,
        /// Connections.
        conns: usize,
        /// Length.
        secs: f64,
        /// Bytes of a request's body.
        body: usize,
    },
    /// New connections, many at once.
    Burst {
        /// Connections of a burst.
        conns: usize,
        /// Milliseconds from one burst to the next.
        every_ms: u64,
        /// Length.
        secs: f64,
        /// Bytes of a request's body.
        body: usize,
    },
    /// Streams that are open at the same time.
    Streams {
        /// How many.
        count: usize,
        /// Milliseconds over which they are opened.
        ramp_ms: u64,
        /// Bytes of a request's body.
        body: usize,
    },
    /// Requests that wait in the gateway.
    Hold {
        /// How many; fewer if open files do not suffice.
        count: usize,
        /// Bytes of a request's body.
        body: usize,
        /// Requests that reach an upstream for each of them.
        sends: u64,
    },
    /// Nothing is sent after the first request.
    Idle {
        /// Length.
        secs: f64,
    },
}

impl Load {
    /// Bytes of a request's body.
    pub fn body(&self) -> usize {
        match self {
            Load::Closed { body, .. }
            | Load::Open { body, .. }
            | Load::Burst { body, .. }
            | Load::Streams { body, .. }
            | Load::Hold { body, .. } => *body,
            Load::Idle { .. } => 0,
        }
    }
}

/// Parts of Rondo's configuration that are laid over the rig's own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// Over the whole file.
    #[serde(default)]
    pub file: Value,
    /// Over each provider.
    #[serde(default)]
    pub provider: Value,
    /// Over each route.
    #[serde(default)]
    pub route: Value,
}

/// How large Rondo's configuration is.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Routes, with one model each; all of them are asked for in turn.
    #[serde(default = "one")]
    pub routes: usize,
    /// Targets of each route; the first one serves.
    #[serde(default = "two")]
    pub targets: usize,
}

/// Enough for compiled programs: it fills caches, heaps and connections.
fn warm_secs() -> f64 {
    0.5
}

fn one() -> usize {
    1
}

fn two() -> usize {
    2
}

impl Default for Size {
    fn default() -> Size {
        Size {
            routes: one(),
            targets: two(),
        }
    }
}

/// A program to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// What scenarios and reports call it.
    pub name: String,
    /// Where it is looked for: names in PATH, or files, below the rig's directory unless they are absolute.
    pub binaries: Vec<String>,
    /// Files that must be there as well.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Its configuration below `peers/`, with placeholders.
    #[serde(default)]
    pub config: Option<String>,
    /// Arguments, with placeholders.
    pub args: Vec<String>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Headers that each request needs, with placeholders.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its primary answers 503 where others' answers 429, since it cannot fail over on 429.
    #[serde(default)]
    pub unavailable_for_throttle: bool,
    /// What a reader must know of how it is set up.
    pub about: String,
}

/// Reads one file; an error names it.
pub fn read<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    let named =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
    serde_yaml::from_str(&text).map_err(|error| named(&error))
}

/// The scenario of this name, or all of them by name.
pub fn find(dir: &Path, name: &str) -> io::Result<Vec<Scenario>> {
    let dir = dir.join("scenarios");
    if name != "all" {
        return Ok(vec![read(&dir.join(format!("{name}.yaml")))?]);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        files.push(entry?.path());
    }
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_and_peers_of_this_tree_can_be_read() -> io::Result<()> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let peers: Vec<Peer> = read(&dir.join("peers/peers.yaml"))?;
        for peer in &peers {
            if let Some(config) = &peer.config {
                assert!(
                    dir.join("peers").join(config).is_file(),
                    "{}: {config}",
                    peer.name
                );
            }
        }
        for scenario in find(dir, "all")? {
            assert!(
                dir.join(format!("scenarios/{}.yaml", scenario.name))
                    .is_file(),
                "{}",
                scenario.name
            );
            for system in &scenario.systems {
                let known = ["direct", "rondo"].contains(&system.as_str());
                assert!(
                    known || peers.iter().any(|peer| peer.name == *system),
                    "{}: {system}",
                    scenario.name
                );
            }
            for name in &scenario.only_with {
                let takes_part = scenario.systems.contains(name);
                assert!(takes_part, "{}: only with {name}", scenario.name);
            }
        }
        Ok(())
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = "{ kind: closed, conns: 1, secs: 1, body: 1, loops: 2 }";
        assert!(serde_yaml::from_str::<Load>(text).is_err());
    }
}
