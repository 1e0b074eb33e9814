//! Measures the gateway from outside, on loopback: starts the binary, plays upstream and client in this process, so that one clock sees both.
//!
//! `rondo-load-tests chunks`: how long a chunk of a stream is in the gateway.
//! `rondo-load-tests closed`: capacity over kept connections, and whether every one is kept.
//! `rondo-load-tests crash`: SIGKILL under load, `--count` times, and what the records say afterwards.
//! `rondo-load-tests modes`: what holds while providers, clients, files or gateways fail.
//! `rondo-load-tests holding`: memory per attempt that waits, and the ledger's share of it.
//! `rondo-load-tests overload`: what a refusal costs, and what admitted streams notice of a flood.
//! `rondo-load-tests run`: the scenarios of `scenarios/`, systems side by side.
//! `rondo-load-tests report`: what the samples in `report/raw/` say.
//! `rondo-load-tests ledger-outage`: what clients notice while the records' PostgreSQL is gone, and every row against every send.
//! `rondo-load-tests soak`: hours of faults, reloads and clients that leave; memory, open files and three books afterwards.

mod chunks;
mod closed;
mod crash;
mod gateway;
mod holding;
mod modes;
mod outage;
mod overload;
mod report;
mod rig;
mod soak;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: rondo-load-tests run NAME|all [--rounds N] [--short] [--binary FILE] [--before FILE] [--dir DIR] [--systems A,B]
       rondo-load-tests modes a|..|h|all [--rounds N] [--short] [--seed N] [--rate N] [--clients N] [--binary FILE] [--dir DIR]
       rondo-load-tests report [DIR]
       rondo-load-tests chunks|closed|crash|holding|ledger-outage|overload|soak
  --binary FILE               the gateway (target/release/rondo)
  --count N                   samples, rounds or attempts; the seed of a soak
  --gap-us N                  microseconds between two chunks
  --rate N                    requests a second
  --body BYTES                size of each request
  --ledger off|batch|strict   where and how records are kept (SQLite)
  --seconds N                 length of a phase";

/// What the command line asks for.
pub struct Options {
    /// The gateway's binary.
    pub binary: PathBuf,
    /// Samples.
    pub count: usize,
    /// Microseconds between two chunks.
    pub gap_us: u64,
    /// Requests a second, where a scenario has a rate.
    pub rate: u64,
    /// Bytes of each request's body.
    pub body: usize,
    /// Where the gateway keeps its records: `off`, `batch` or `strict`.
    pub ledger: String,
    /// Length of a phase.
    pub seconds: u64,
}

impl Options {
    fn parse(scenario: &str, mut args: impl Iterator<Item = String>) -> Option<Options> {
        let mut options = Options {
            binary: PathBuf::from("target/release/rondo"),
            count: match scenario {
                "holding" => 10_000,
                "crash" => 20,
                "overload" => 50,
                _ => 1000,
            },
            gap_us: 2000,
            rate: 500,
            body: 100 << 10,
            ledger: if scenario == "crash" { "batch" } else { "off" }.to_owned(),
            seconds: if scenario == "soak" { 3600 } else { 60 },
        };
        while let Some(flag) = args.next() {
            let value = args.next()?;
            match flag.as_str() {
                "--binary" => options.binary = value.into(),
                "--count" => options.count = value.parse().ok()?,
                "--gap-us" => options.gap_us = value.parse().ok()?,
                "--rate" => options.rate = value.parse().ok()?,
                "--body" => options.body = value.parse().ok()?,
                "--ledger" if ["off", "batch", "strict"].contains(&value.as_str()) => {
                    options.ledger = value
                }
                "--seconds" => {
                    options.seconds = value
                        .parse()
                        .ok()
                        .filter(|seconds| (1..=86_400).contains(seconds))?
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let scenario = args.next().unwrap_or_default();
    match scenario.as_str() {
        "run" => return rig::run::run(args),
        "modes" => return modes::run(args).await,
        "report" => return report::run(args),
        _ => {}
    }
    let Some(options) = Options::parse(&scenario, args) else {
        return usage();
    };
    match scenario.as_str() {
        "chunks" => chunks::run(&options).await,
        "closed" => closed::run(&options).await,
        "crash" => crash::run(&options).await,
        "holding" => {
            holding::raise_limit();
            holding::run(&options).await
        }
        "ledger-outage" => outage::run(&options).await,
        "overload" => overload::run(&options).await,
        "soak" => soak::run(&options).await,
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
