//! What holds while something fails: one mode, one kind of trouble, under load, with a steady route beside it that nothing happens to.
//!
//! `rondo-load-tests modes a|b|c|d|e|f|g|h|all`. Each mode asserts zeros; the command fails when one does not hold, and names it.
//! Numbers that depend on the machine are reported and not judged.

mod calm;
mod client;
mod dice;
mod fleet;
mod flood;
mod leaving;
mod ledger;
mod process;
mod reloads;
mod trouble;
mod upstream;
mod wire;
mod world;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::report::machine::Machine;
use crate::report::raw::{Kind, Raw};
use crate::rig::sys::raise_files;

const USAGE: &str = "usage: rondo-load-tests modes a|b|c|d|e|f|g|h|all
  --binary FILE      the gateway (target/release/rondo)
  --short            at most 15 s a row instead of 120 s
  --rounds N         how often each row is measured (1)
  --seed N           of every draw (1)
  --rate N           requests a second of the mode's clients (200)
  --clients N        clients of b (10000; short 2000)
  --dir DIR          where report/raw/failure-LETTER.json goes (load-tests)";

/// Longer than any row may take: then something hangs that should not.
const ROW_MAX: Duration = Duration::from_secs(180);

/// What the command line asks for.
pub struct Plan {
    pub binary: PathBuf,
    form: Form,
    rounds: u64,
    pub seed: u64,
    pub rate: u64,
    clients: Option<usize>,
    dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Short,
    Full,
}

impl Plan {
    fn parse(mut args: impl Iterator<Item = String>) -> Option<Plan> {
        let mut plan = Plan {
            binary: PathBuf::from("target/release/rondo"),
            form: Form::Full,
            rounds: 1,
            seed: 1,
            rate: 200,
            clients: None,
            dir: PathBuf::from("load-tests"),
        };
        while let Some(flag) = args.next() {
            if flag == "--short" {
                plan.form = Form::Short;
                continue;
            }
            let value = args.next()?;
            match flag.as_str() {
                "--binary" => plan.binary = value.into(),
                "--rounds" => plan.rounds = bounded(&value, 1, 20)?,
                "--seed" => plan.seed = value.parse().ok()?,
                "--rate" => plan.rate = bounded(&value, 1, 10_000)?,
                "--clients" => plan.clients = Some(bounded(&value, 1, 19_000)? as usize),
                "--dir" => plan.dir = value.into(),
                _ => return None,
            }
        }
        Some(plan)
    }

    fn pick(&self, short: u64, full: u64) -> Duration {
        Duration::from_millis(match self.form {
            Form::Short => short,
            Form::Full => full,
        })
    }

    /// How long the steady route is alone.
    pub fn before(&self) -> Duration {
        self.pick(1500, 14_000)
    }

    /// How long the trouble lasts.
    pub fn during(&self) -> Duration {
        self.pick(2500, 38_000)
    }

    /// How long the gateway is left in peace before it is looked at.
    pub fn after(&self) -> Duration {
        self.pick(10_000, 60_000)
    }

    /// How many clients come at once in b.
    pub fn clients(&self) -> usize {
        self.clients.unwrap_or(match self.form {
            Form::Short => 2000,
            Form::Full => 10_000,
        })
    }

    /// Time between two reloads.
    pub fn between_reloads(&self) -> Duration {
        self.pick(250, 1000)
    }
}

fn bounded(text: &str, min: u64, max: u64) -> Option<u64> {
    let number = text.parse().ok()?;
    (min..=max).contains(&number).then_some(number)
}

/// What one row found.
pub struct Outcome {
    label: String,
    metrics: Vec<(String, f64)>,
    zeros: Vec<(String, u64)>,
    notes: Vec<String>,
    /// The end of each gateway's log.
    logs: Vec<String>,
}

impl Outcome {
    fn new(label: &str) -> Outcome {
        Outcome {
            label: label.to_owned(),
            metrics: Vec::new(),
            zeros: Vec::new(),
            notes: Vec::new(),
            logs: Vec::new(),
        }
    }

    fn metric(&mut self, what: &str, value: f64) {
        self.metrics.push((what.to_owned(), value));
    }

    fn zero(&mut self, what: &str, value: u64) {
        self.zeros.push((what.to_owned(), value));
    }

    /// Prints what it is, and each zero that does not hold; whether all do.
    fn print(&self) -> bool {
        println!("{}", self.label);
        for (what, value) in &self.metrics {
            println!("    {what:<30} {value:>12.2}");
        }
        let broken: Vec<_> = self.zeros.iter().filter(|(_, value)| *value > 0).collect();
        for (what, value) in &broken {
            println!("    NOT ZERO: {what}: {value}");
        }
        println!(
            "    {} zeros of {}",
            self.zeros.len() - broken.len(),
            self.zeros.len()
        );
        for log in self.logs.iter().filter(|_| !broken.is_empty()) {
            println!("    the gateway's log ends:\n{log}");
        }
        broken.is_empty()
    }
}

/// The modes, and in one sentence what each measures.
const MODES: [(&str, &str); 8] = [
    (
        "a",
        "The first target answers every send with a certified 429, the second one serves.",
    ),
    (
        "b",
        "All targets answer every send with 429 and Retry-After 1 s, and many clients come at once and come back as told.",
    ),
    (
        "c",
        "30 % of the sends are answered with a connection reset once the request is read.",
    ),
    (
        "d",
        "1 % of the sends are read and never answered; the gateway waits 500 ms.",
    ),
    (
        "e",
        "20 % of the clients leave: in their upload, while they wait, inside the answer.",
    ),
    (
        "f",
        "Clients read streams at 1 KB/s, and half of them leave in the end.",
    ),
    (
        "g",
        "The configuration is changed and read again while requests are in flight.",
    ),
    (
        "h",
        "Three gateways behind a TCP balancer; one is killed under load and started again.",
    ),
];

/// Runs `modes LETTER ...`.
pub async fn run(mut args: impl Iterator<Item = String>) -> ExitCode {
    let letter = args.next().unwrap_or_default();
    if letter == flood::ROLE {
        return flood::play(args).await;
    }
    let chosen: Vec<_> = MODES
        .iter()
        .filter(|(mode, _)| letter == *mode || letter == "all")
        .collect();
    let Some(plan) = Plan::parse(args).filter(|_| !chosen.is_empty()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Err(error) = raise_files() {
        eprintln!("the limit of open files stays: {error}");
    }
    let mut good = true;
    for (mode, what) in chosen {
        match measure(&plan, mode, what).await {
            Ok(holds) => good &= holds,
            Err(error) => {
                eprintln!("mode {mode}: {error}");
                good = false;
            }
        }
    }
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

async fn measure(plan: &Plan, mode: &str, what: &str) -> io::Result<bool> {
    let short = match plan.form {
        Form::Short => " --short",
        Form::Full => "",
    };
    let (rounds, seed) = (plan.rounds, plan.seed);
    let command = format!("rondo-load-tests modes {mode}{short} --rounds {rounds} --seed {seed}");
    let mut raw = Raw::new(&format!("failure-{mode}"), Kind::Failure, what, &command);
    let mut good = true;
    for _ in 0..plan.rounds {
        for row in 0..rows(mode) {
            let outcome = tokio::time::timeout(ROW_MAX, play(plan, mode, row)).await;
            let outcome = outcome.map_err(|_| io::Error::other("it did not end"))??;
            good &= outcome.print();
            for (what, value) in &outcome.metrics {
                raw.record(&outcome.label, what, *value);
            }
            for (what, value) in &outcome.zeros {
                raw.zero(what, *value);
            }
            for note in outcome.notes {
                raw.note(note);
            }
        }
    }
    let report = plan.dir.join("report");
    raw.write(&report)?;
    Machine::here().write(&report)?;
    Ok(good)
}

/// How many rows a mode has.
fn rows(mode: &str) -> u8 {
    match mode {
        "a" | "b" | "e" => 2,
        "h" => 3,
        _ => 1,
    }
}

async fn play(plan: &Plan, mode: &str, row: u8) -> io::Result<Outcome> {
    match mode {
        "a" => trouble::throttled_first(plan, row).await,
        "b" => flood::run(plan, row).await,
        "c" => trouble::resets(plan).await,
        "d" => trouble::silence(plan).await,
        "e" => leaving::aborts(plan, row).await,
        "f" => leaving::slow_readers(plan).await,
        "g" => reloads::run(plan).await,
        _ => fleet::run(plan, row).await,
    }
}
