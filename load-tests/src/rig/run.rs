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
    /// Another build of the gateway, in the same rounds.
    before: Option<PathBuf>,
    dir: PathBuf,
    rounds: Option<usize>,
    short: bool,
    systems: Option<Vec<String>>,
}

/// Parses the arguments after `run` and does what they say.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let Some(options) = parse(args) else {
        eprintln!(
            "usage: rondo-load-tests run NAME|all [--rounds N] [--short] [--binary FILE] [--before FILE] [--dir DIR] [--systems A,B]"
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
        before: None,
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
            "--before" => options.before = Some(args.next()?.into()),
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

impl Instance<'_> {
    /// A peer may be missing; the gateway that is to be measured may not.
    fn is_rondo(&self) -> bool {
        matches!(self.what, What::Rondo { .. })
    }
}

fn measure(options: &Options) -> io::Result<()> {
    let peers: Vec<Peer> = read(&options.dir.join("peers/peers.yaml"))?;
    let scenarios = find(&options.dir, &options.name)?;
    let files = sys::raise_files()?;
    let cores = std::thread::available_parallelism()?.get();
    sys::pin(0)?;
    let binary = std::path::absolute(&options.binary)?;
    let before = options
        .before
        .as_ref()
        .map(std::path::absolute)
        .transpose()?;
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
    let mut failed = Vec::new();
    for scenario in &scenarios {
        if !wanted(scenario, &peers, &dir) {
            let names = scenario.only_with.join(", ");
            println!("{}: left out, not installed: {names}", scenario.name);
            // Who asks for all asks for what can be had; who asks for this one does not get it.
            failed.extend((options.name == scenario.name).then_some(scenario.name.as_str()));
            continue;
        }
        // Memory that requests hold hardly varies, and thousands of them take long.
        let held = options.short && matches!(scenario.load, Load::Hold { .. });
        let rounds = options.rounds.unwrap_or(if held { 1 } else { rounds });
        let began = sys::now();
        let mut bench = Bench {
            scenario,
            before: before.as_deref(),
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
        if let Err(error) = bench.run(&binary, &peers, options.systems.as_deref(), rounds) {
            eprintln!("{}: {error}", scenario.name);
            failed.push(scenario.name.as_str());
            // Samples of an earlier run stay.
            continue;
        }
        let file = bench.raw.write(&report)?;
        println!(
            "{}: {} s, {}",
            scenario.name,
            (sys::now() - began) / 1_000_000_000,
            file.display()
        );
    }
    Machine::here().write(&report)?;
    if failed.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(format!("failed: {}", failed.join(", "))))
    }
}

/// Whether a program for whose sake the scenario is run is there.
fn wanted(scenario: &Scenario, peers: &[Peer], dir: &Path) -> bool {
    let there = |name: &String| {
        let peer = peers.iter().find(|peer| peer.name == *name);
        peer.is_some_and(|peer| installed(peer, dir).is_some())
    };
    scenario.only_with.is_empty() || scenario.only_with.iter().any(there)
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
    before: Option<&'a Path>,
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
                let warmed = instance
                    .system
                    .as_ref()
                    .map(|system| warm(system, self.scenario, instance.routes));
                if let Some(Err(error)) = warmed {
                    eprintln!("{}: {}: {error}", self.scenario.name, instance.label);
                    self.raw.note(format!(
                        "{}: failed before the first round, and is left out.",
                        instance.label
                    ));
                    instance.system = None;
                }
            }
            if instances
                .iter()
                .any(|instance| instance.system.is_none() && instance.is_rondo())
            {
                return Err(io::Error::other("the gateway did not start"));
            }
            instances.retain(|instance| instance.system.is_some());
        }
        let mut others = Vec::new();
        for round in 0..rounds {
            self.round(round, &mut instances, ports, &mut others)?;
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
            let busy = ": the machine was not idle, figures are provisional";
            self.raw.note(format!(
                "Other programs used {:.2} cores meanwhile in the median, {:.2} at most{}.",
                others.median,
                others.max,
                if others.median > OTHERS_MAX { busy } else { "" }
            ));
        }
        Ok(())
    }

    /// Every system's turn. One that fails takes part in no further round, so that samples of one index are of one round.
    fn round(
        &mut self,
        round: usize,
        instances: &mut Vec<Instance<'_>>,
        ports: &[Port],
        others: &mut Vec<f64>,
    ) -> io::Result<()> {
        let mut samples = BTreeMap::new();
        let mut failed = Vec::new();
        let mut order: Vec<usize> = (0..instances.len()).collect();
        // Backwards every other time, so that a machine that gets slower favours nobody.
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Some(instance) = instances.get_mut(at) else {
                continue;
            };
            let (name, label) = (&self.scenario.name, instance.label.clone());
            match self.turn(instance, ports) {
                Ok(sample) => {
                    println!("{name} round {} {label:<12} {}", round + 1, line(&sample));
                    others.push(sample.others);
                    samples.insert(at, (label, sample));
                }
                Err(error) if instance.is_rondo() => return Err(error),
                Err(error) => {
                    eprintln!("{name}: {label}: {error}");
                    self.raw.note(format!(
                        "{label} failed in round {} and takes no further part.",
                        round + 1
                    ));
                    failed.push(label);
                }
            }
        }
        let direct = samples.values().find(|(label, _)| label == "direct");
        let direct = direct.map(|(_, sample)| sample.metrics.clone());
        for (label, sample) in samples.values() {
            self.record(label, sample, direct.as_deref());
        }
        instances.retain(|instance| !failed.contains(&instance.label));
        if instances.is_empty() {
            Err(io::Error::other("no system is left"))
        } else {
            Ok(())
        }
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
        let rondo = |label: String, binary: &'s Path, size: Size| Instance {
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
                .map(|size| rondo(label(self.scenario, *size), binary, *size))
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
                    instances.push(rondo(name.clone(), binary, size));
                    let before = self
                        .before
                        .map(|before| rondo("before".to_owned(), before, size));
                    if before.is_some() {
                        self.raw
                            .note("before: another build of the gateway, given with --before.");
                    }
                    instances.extend(before);
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

    fn turn(&mut self, instance: &mut Instance<'_>, ports: &[Port]) -> io::Result<Sample> {
        if self.fresh() {
            self.start(instance, ports);
        }
        let system = instance
            .system
            .as_ref()
            .ok_or_else(|| io::Error::other("is not running"))?;
        let sample = sample(system, self.scenario, instance.routes, ports, self.form);
        if self.fresh() {
            instance.system = None;
        }
        sample
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
