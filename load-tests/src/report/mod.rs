//! What was measured and what it says: `raw` keeps samples, this renders them. Nothing here measures.

pub mod machine;
pub mod raw;
pub mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

/// The directory of the report, from where `make` runs.
pub const DIR: &str = "load-tests/report";

/// Lists the scenarios below the report's directory (the argument, or [`DIR`]).
pub fn run(mut args: impl Iterator<Item = String>) -> ExitCode {
    let dir = PathBuf::from(args.next().unwrap_or_else(|| DIR.to_owned()));
    match raw::Raw::read_all(&dir) {
        Ok(all) => {
            for raw in all {
                println!("{:<24} {} rows   {}", raw.name, raw.rows.len(), raw.what);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}
