//! Measures the gateway from outside, on loopback: starts the binary, plays upstream and client in this process, so that one clock sees both.
//!
//! `rondo-load-tests chunks [--binary FILE] [--count N] [--gap-us N]`: how long a chunk of a stream is in the gateway.
//! `rondo-load-tests closed [--binary FILE] [--count N]`: capacity over kept connections, and whether every one is kept.
//!
//! `--ledger batch` or `strict` lets the gateway record into a SQLite file; without it nothing is recorded.

mod chunks;
mod closed;
mod gateway;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the command line asks for.
pub struct Options {
    /// The gateway's binary.
    pub binary: PathBuf,
    /// Samples.
    pub count: usize,
    /// Microseconds between two chunks.
    pub gap_us: u64,
    /// Where the gateway keeps its records: `off`, `batch` or `strict`.
    pub ledger: String,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let scenario = args.next().unwrap_or_default();
    let mut options = Options {
        binary: PathBuf::from("target/release/rondo"),
        count: 1000,
        gap_us: 2000,
        ledger: "off".to_owned(),
    };
    while let Some(flag) = args.next() {
        let Some(value) = args.next() else { return usage() };
        match flag.as_str() {
            "--binary" => options.binary = value.into(),
            "--count" => match value.parse() {
                Ok(count) => options.count = count,
                Err(_) => return usage(),
            },
            "--gap-us" => match value.parse() {
                Ok(gap) => options.gap_us = gap,
                Err(_) => return usage(),
            },
            "--ledger" => options.ledger = value,
            _ => return usage(),
        }
    }
    match scenario.as_str() {
        "chunks" => chunks::run(&options).await,
        "closed" => closed::run(&options).await,
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: rondo-load-tests chunks|closed [--binary FILE] [--count N] [--gap-us N] [--ledger off|batch|strict]");
    ExitCode::from(2)
}
