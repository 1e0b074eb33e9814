//! `run`: scenarios, each in rounds in which every system has its turn, forwards and then backwards. Writes samples; prints them as they come.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::rounds::{Form, Sample, sample, syscalls, warm};
use super::scenario::{Load, Peer, Scenario, Size, find, read};
use super::sys;
use super::system::{Place, System, What, installed, sweep};
use super::upstream::{Answer, Port, Upstreams};
use crate::report::machine::Machine;
use crate::report::raw::Raw;
use crate::report::stats::spread;

/// Rounds of the full and of the short form.
const ROUNDS: usize = 5;
const ROUNDS_SHORT: usize = 3;
/// The part of each load's length that the short form takes.
const SHORT_SHARE: f64 = 0.5;
/// Above this many cores used by others in the median, figures are disturbed and the report says so.
const OTHERS_MAX: f64 = 0.1;

/// What the command line asks for.
struct Options {
    name: String,
    binary: PathBuf,
    dir: PathBuf,
    rounds: Option<usize>,
    short: bool,
    systems: Option<Vec<String>>,
}

/// Parses the arguments after `run` and does what they say.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let Some(options) = parse(args) else {
        eprintln!(
            "usage: rondo-load-tests run NAME|all [--rounds N] [--short] [--binary FILE] [--dir DIR] [--systems A,B]"
        );
        return ExitCode::from(2);
    };
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        name: args.next().filter(|name| !name.starts_with('-'))?,
        binary: PathBuf::from("target/release/rondo"),
        dir: PathBuf::from("load-tests"),
        rounds: None,
        short: false,
        systems: None,
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--short" => options.short = true,
            "--rounds" => {
                options.rounds = Some(args.next()?.parse().ok().filter(|rounds| *rounds > 0)?)
            }
            "--binary" => options.binary = args.next()?.into(),
            "--dir" => options.dir = args.next()?.into(),
            "--systems" => {
                options.systems = Some(args.next()?.split(',').map(str::to_owned).collect())
            }
            _ => return None,
        }
    }
    Some(options)
}

/// One row of a scenario.
struct Instance<'a> {
    label: String,
    what: What<'a>,
    routes: usize,
    unavailable: bool,
    system: Option<System>,
}

fn measure(options: &Options) -> io::Result<()> {
    let peers: Vec<Peer> = read(&options.dir.join("peers/peers.yaml"))?;
    let scenarios = find(&options.dir, &options.name)?;
    let files = sys::raise_files()?;
    let cores = std::thread::available_parallelism()?.get();
    sys::pin(0)?;
    let binary = std::path::absolute(&options.binary)?;
    let dir = std::path::absolute(&options.dir)?;
    let report = dir.join("report");
    let form = Form {
        share: if options.short { SHORT_SHARE } else { 1.0 },
        files,
    };
    let rounds = options
        .rounds
        .unwrap_or(if options.short { ROUNDS_SHORT } else { ROUNDS });
    sweep();
    for scenario in &scenarios {
        // Memory that requests hold hardly varies, and thousands of them take long.
        let held = options.short && matches!(scenario.load, Load::Hold { .. });
        let rounds = options.rounds.unwrap_or(if held { 1 } else { rounds });
        let began = sys::now();
        let mut bench = Bench {
            scenario,
            dir: &dir,
            core: 1.min(cores - 1),
            form,
            raw: Raw::new(
                &scenario.name,
                scenario.kind,
                &scenario.what,
                &command(options, scenario, rounds),
            ),
        };
        bench.run(&binary, &peers, options.systems.as_deref(), rounds)?;
        let file = bench.raw.write(&report)?;
        println!(
            "{}: {} s, {}",
            scenario.name,
            (sys::now() - began) / 1_000_000_000,
            file.display()
        );
    }
    Machine::here().write(&report)
}

fn command(options: &Options, scenario: &Scenario, rounds: usize) -> String {
    let short = if options.short { " --short" } else { "" };
    format!(
        "rondo-load-tests run {} --rounds {rounds}{short}",
        scenario.name
    )
}

struct Bench<'a> {
    scenario: &'a Scenario,
    dir: &'a Path,
    core: usize,
    form: Form,
    raw: Raw,
}

impl<'s> Bench<'s> {
    fn run(
        &mut self,
        binary: &'s Path,
        peers: &'s [Peer],
        only: Option<&[String]>,
        rounds: usize,
    ) -> io::Result<()> {
        for note in &self.scenario.notes {
            self.raw.note(note);
        }
        let targets = &self.scenario.upstreams;
        let unavailable = Answer::Unavailable;
        let upstreams =
            Upstreams::start(&[targets.primary.clone(), targets.backup.clone(), unavailable])?;
        let mut instances = self.instances(binary, peers, only);
        let ports = upstreams.ports.as_slice();
        if !self.fresh() {
            for instance in &mut instances {
                self.start(instance, ports);
                if let Some(system) = &instance.system {
                    warm(system, self.scenario, instance.routes)?;
                }
            }
            instances.retain(|instance| instance.system.is_some());
        }
        let mut others = Vec::new();
        for round in 0..rounds {
            let mut samples = BTreeMap::new();
            let count = instances.len();
            for turn in 0..count {
                // Backwards every other time, so that a machine that gets slower favours nobody.
                let at = if round % 2 == 0 {
                    turn
                } else {
                    count - 1 - turn
                };
                let Some(instance) = instances.get_mut(at) else {
                    continue;
                };
                if let Some(sample) = self.turn(instance, ports)? {
                    others.push(sample.others);
                    println!(
                        "{} round {} {:<12} {}",
                        self.scenario.name,
                        round + 1,
                        instance.label,
                        line(&sample)
                    );
                    samples.insert(at, sample);
                }
            }
            let direct = instances
                .iter()
                .position(|instance| instance.label == "direct");
            let direct = direct
                .and_then(|at| samples.get(&at))
                .map(|sample| sample.metrics.clone());
            for (at, sample) in samples {
                if let Some(instance) = instances.get(at) {
                    self.record(&instance.label, &sample, direct.as_deref());
                }
            }
        }
        for instance in &instances {
            if let Some(system) = &instance.system
                && let Some(calls) = syscalls(system, self.scenario, instance.routes)?
            {
                self.raw
                    .record(&instance.label, "system calls/request", calls);
            }
        }
        if let Some(others) = spread(&others) {
            self.raw.note(format!(
                "Other programs used {:.2} cores meanwhile in the median, {:.2} at most{}.",
                others.median,
                others.max,
                if others.median > OTHERS_MAX {
                    ": the machine was not idle, figures are provisional"
                } else {
                    ""
                }
            ));
        }
        Ok(())
    }

    /// Whether each sample needs a process of its own: a grown heap would hide what is measured.
    fn fresh(&self) -> bool {
        matches!(
            self.scenario.load,
            Load::Streams { .. } | Load::Hold { .. } | Load::Idle { .. }
        )
    }

    fn instances(
        &mut self,
        binary: &'s Path,
        peers: &'s [Peer],
        only: Option<&[String]>,
    ) -> Vec<Instance<'s>> {
        let overrides = &self.scenario.gateway;
        let rondo = |label: String, size: Size| Instance {
            label,
            what: What::Rondo {
                binary,
                size,
                overrides,
            },
            routes: size.routes,
            unavailable: false,
            system: None,
        };
        if !self.scenario.sizes.is_empty() {
            let sizes = self.scenario.sizes.iter();
            return sizes
                .map(|size| rondo(label(self.scenario, *size), *size))
                .collect();
        }
        let size = Size {
            routes: self.scenario.routes,
            ..Size::default()
        };
        let mut instances = Vec::new();
        for name in &self.scenario.systems {
            if only.is_some_and(|only| !only.contains(name)) {
                continue;
            }
            let peer = peers.iter().find(|peer| peer.name == *name);
            let what = match (name.as_str(), peer) {
                ("direct", _) => What::Direct,
                ("rondo", _) => {
                    instances.push(rondo(name.clone(), size));
                    continue;
                }
                (_, Some(peer)) if installed(peer, self.dir).is_some() => {
                    self.raw.note(format!("{name}: {}", peer.about));
                    What::Peer(peer)
                }
                _ => {
                    self.raw.note(format!("{name}: not installed."));
                    continue;
                }
            };
            let unavailable = peer.is_some_and(|peer| peer.unavailable_for_throttle);
            instances.push(Instance {
                label: name.clone(),
                what,
                routes: 1,
                unavailable,
                system: None,
            });
        }
        instances
    }

    fn start(&mut self, instance: &mut Instance<'_>, ports: &[Port]) {
        let throttles = matches!(self.scenario.upstreams.primary, Answer::Throttle { .. });
        let primary = if instance.unavailable && throttles {
            2
        } else {
            0
        };
        let number = |at: usize| ports.get(at).map_or(0, |port| port.number);
        let place = Place {
            dir: self.dir,
            core: self.core,
            primary: number(primary),
            backup: number(1),
            body: self.scenario.load.body(),
            answers: !matches!(self.scenario.load, Load::Hold { .. }),
        };
        match System::start(&instance.label, &instance.what, &place) {
            Ok(system) => instance.system = Some(system),
            Err(error) => {
                eprintln!("{}: {}: {error}", self.scenario.name, instance.label);
                self.raw.note(format!(
                    "{}: could not be started, and is left out.",
                    instance.label
                ));
            }
        }
    }

    fn turn(&mut self, instance: &mut Instance<'_>, ports: &[Port]) -> io::Result<Option<Sample>> {
        if self.fresh() {
            self.start(instance, ports);
        }
        let Some(system) = &instance.system else {
            return Ok(None);
        };
        let sample = sample(system, self.scenario, instance.routes, ports, self.form)?;
        if self.fresh() {
            instance.system = None;
        }
        Ok(Some(sample))
    }

    fn record(&mut self, label: &str, sample: &Sample, direct: Option<&[(&'static str, f64)]>) {
        for (metric, value) in &sample.metrics {
            self.raw.record(label, metric, *value);
        }
        let direct = direct.filter(|_| label != "direct").unwrap_or_default();
        for (metric, over) in [
            ("latency p50 us", "p50 over direct us"),
            ("latency p99 us", "p99 over direct us"),
        ] {
            let of = |metrics: &[(&'static str, f64)]| {
                metrics
                    .iter()
                    .find(|(name, _)| *name == metric)
                    .map(|(_, value)| *value)
            };
            if let (Some(own), Some(direct)) = (of(&sample.metrics), of(direct)) {
                self.raw.record(label, over, own - direct);
            }
        }
        self.raw
            .zero(&format!("{label}: answers other than scripted"), sample.bad);
        self.raw
            .zero(&format!("{label}: broken, lost or unfinished"), sample.lost);
        if let Some(note) = &sample.note {
            self.raw.note(note);
        }
    }
}

/// A size as a row's name: what varies in the scenario.
fn label(scenario: &Scenario, size: Size) -> String {
    let routes = scenario
        .sizes
        .iter()
        .any(|other| other.routes != size.routes);
    let (count, what) = if routes {
        (size.routes, "route")
    } else {
        (size.targets, "target")
    };
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn line(sample: &Sample) -> String {
    let mut text = String::new();
    for (metric, value) in &sample.metrics {
        text.push_str(&format!("{metric} {value:.3}   "));
    }
    text.push_str(&format!("others {:.2} cores", sample.others));
    if sample.bad + sample.lost > 0 {
        text.push_str(&format!("   BAD {} LOST {}", sample.bad, sample.lost));
    }
    text
}
