//! Runs a program that prints credentials.
//!
//! Not here: how its output is read. No shell reads its command line. Bounds: bytes of its output, and the time of the whole exchange, at
//! the end of which it is killed. What it writes to stderr may be secret and is dropped.

use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::line::ExchangeError;
use crate::policy::secret::Secret;
use crate::providers::token::ANSWER_BYTES_MAX;

/// What the program prints. Errors name nothing but the way it failed.
pub(super) async fn output(words: &[Secret]) -> Result<Vec<u8>, ExchangeError> {
    let failed = |what: &str| ExchangeError::Program(what.to_owned());
    let Some((program, arguments)) = words.split_first() else {
        return Err(failed("has no name"));
    };
    let mut child = Command::new(program.expose())
        .args(arguments.iter().map(Secret::expose))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(&format!("cannot be run: {}", error.kind())))?;
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let bound = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
        let mut stdout = stdout.take(bound);
        let read = stdout.read_to_end(&mut printed).await;
        read.map_err(|error| failed(&format!("cannot be read from: {}", error.kind())))?;
        if printed.len() >= ANSWER_BYTES_MAX {
            return Err(failed("prints too much"));
        }
    }
    let ended = child.wait().await;
    let status =
        ended.map_err(|error| failed(&format!("cannot be waited for: {}", error.kind())))?;
    match status.code() {
        Some(0) => Ok(printed),
        Some(code) => Err(failed(&format!("ended with {code}"))),
        None => Err(failed("was ended by a signal")),
    }
}
