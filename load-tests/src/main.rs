//! Measures the gateway from outside, on loopback: starts the binary, plays upstream and client in this process, so that one clock sees both.
//!
//! `rondo-load-tests chunks [--binary FILE] [--count N] [--gap-us N]`: how long a chunk of a stream is in the gateway.
//! `rondo-load-tests holding [--binary FILE] [--count N] [--body BYTES]`: memory per attempt that waits, and the ledger's share of it.
//! `rondo-load-tests closed [--binary FILE] [--count N]`: capacity over kept connections, and whether every one is kept.
//! `rondo-load-tests crash [--binary FILE] [--count ROUNDS] [--rate N] [--durability batch|strict]`: SIGKILL under load, and what the records say.

mod chunks;
mod closed;
mod crash;
mod gateway;
mod holding;
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
    /// Requests a second, where a scenario has a rate.
    pub rate: u64,
    /// `ledger.durability`.
    pub durability: String,
    /// Bytes of each request's body.
    pub body: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let scenario = args.next().unwrap_or_default();
    let mut options = Options {
        binary: PathBuf::from("target/release/rondo"),
        count: if scenario == "holding" { 10_000 } else { 1000 },
        gap_us: 2000,
        rate: 500,
        durability: "batch".to_owned(),
        body: 100 << 10,
    };
    while let Some(flag) = args.next() {
        let Some(value) = args.next() else { return usage() };
        match flag.as_str() {
            "--binary" => options.binary = value.into(),
            "--count" => match value.parse() {
                Ok(count) => options.count = count,
                Err(_) => return usage(),
            },
            "--body" => match value.parse() {
                Ok(body) => options.body = body,
                Err(_) => return usage(),
            },
            "--gap-us" => match value.parse() {
                Ok(gap) => options.gap_us = gap,
                Err(_) => return usage(),
            },
            "--rate" => match value.parse() {
                Ok(rate) => options.rate = rate,
                Err(_) => return usage(),
            },
            "--durability" if ["batch", "strict"].contains(&value.as_str()) => options.durability = value,
            _ => return usage(),
        }
    }
    match scenario.as_str() {
        "chunks" => chunks::run(&options).await,
        "crash" => crash::run(&options).await,
        "closed" => closed::run(&options).await,
        "holding" => {
            holding::raise_limit();
            holding::run(&options).await
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: rondo-load-tests chunks|closed|crash|holding [--binary FILE] [--body BYTES] [--count N] [--gap-us N] [--rate N] [--durability batch|strict]");
    ExitCode::from(2)
}
