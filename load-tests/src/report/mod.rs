//! What was measured and what it says: `raw` keeps samples, this renders them. Nothing here measures.
//!
//! `document` says what the samples mean, `markdown` and `html` how that looks; `svg` draws.

pub mod document;
pub mod html;
pub mod machine;
pub mod markdown;
pub mod raw;
pub mod stats;
pub mod svg;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The directory of the report, from where `make` runs.
pub const DIR: &str = "load-tests/report";

/// Renders the samples below the report's directory (the argument, or [`DIR`]).
pub fn run(mut args: impl Iterator<Item = String>) -> ExitCode {
    let dir = PathBuf::from(args.next().unwrap_or_else(|| DIR.to_owned()));
    match render(&dir) {
        Ok(count) => {
            println!(
                "{count} scenarios: {0}/README.md, {0}/index.html",
                dir.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// Writes `README.md` and `index.html` from `raw/*.json` and `machine.json`.
fn render(dir: &Path) -> io::Result<usize> {
    let raws = raw::Raw::read_all(dir)?;
    let document = document::build(&raws, &machine::Machine::read(dir));
    std::fs::write(dir.join("README.md"), markdown::render(&document))?;
    std::fs::write(dir.join("index.html"), html::render(&document))?;
    Ok(raws.len())
}
