//! Fetches secrets: from the environment, from a file, or from the configuration itself.
//!
//! Invariant: a message names the source of a secret, never its text, and not even the source where that looks like a secret itself.

use super::compile::Compiler;
use super::problem::Spot;
use super::reader::Map;
use crate::policy::secret::Secret;

/// Longest secret. Signed tokens have a few KiB; service-account files up to 16.
const SECRET_BYTES_MAX: usize = 16 << 10;

/// The secret that a mapping with one of `env`, `file` and `literal` names, fit for a header.
pub(super) fn resolve(compiler: &mut Compiler<'_>, source: &Map<'_>) -> Option<Secret> {
    let (spot, text) = fetch(compiler, source)?;
    match flaw(&text) {
        None => Some(Secret::new(text)),
        Some(flaw) => {
            compiler.report.refuse(&spot, format!("the secret {flaw}"));
            None
        }
    }
}

/// The same for a document that is secret as a whole and has lines. It never goes into a header.
pub(super) fn document(compiler: &mut Compiler<'_>, source: &Map<'_>) -> Option<(Spot, Secret)> {
    let (spot, text) = fetch(compiler, source)?;
    if text.len() > SECRET_BYTES_MAX {
        compiler
            .report
            .refuse(&spot, "the secret is longer than 16 KiB");
        return None;
    }
    Some((spot, Secret::new(text)))
}

/// The text, and where its source is named.
fn fetch(compiler: &mut Compiler<'_>, source: &Map<'_>) -> Option<(Spot, String)> {
    let (key, text) = if let Some(name) = source.text("env") {
        ("env", variable(compiler, &source.at("env"), name)?)
    } else if let Some(file) = source.text("file") {
        ("file", contents(compiler, &source.at("file"), file)?)
    } else {
        let text = source.text("literal")?;
        compiler.report.warn(
            &source.at("literal"),
            "the secret stands in the file for all to read; use { env: VARIABLE } or { file: FILE }",
        );
        ("literal", text.to_owned())
    };
    Some((source.at(key), text))
}

fn variable(compiler: &mut Compiler<'_>, spot: &Spot, name: &str) -> Option<String> {
    let shown = if resembles_secret(name) {
        "named here (not shown, since its name looks like a secret)".to_owned()
    } else {
        name.to_owned()
    };
    let problem = match compiler.env.var(name) {
        Some(text) if !text.trim().is_empty() => return Some(text.trim().to_owned()),
        Some(_) => "is empty",
        None => "is not set",
    };
    let message =
        format!("the environment variable {shown} {problem}; set it, or use {{ file: FILE }}");
    compiler.report.refuse(spot, message);
    None
}

fn contents(compiler: &mut Compiler<'_>, spot: &Spot, file: &str) -> Option<String> {
    let bytes = compiler.read(spot, file)?;
    let problem = match String::from_utf8(bytes) {
        Ok(text) if !text.trim().is_empty() => return Some(text.trim().to_owned()),
        Ok(_) => "is empty",
        Err(_) => "is not UTF-8 text",
    };
    compiler
        .report
        .refuse(spot, format!("the file {file} {problem}"));
    None
}

/// Long names of mixed letters and digits are keys pasted where the variable's name belongs.
fn resembles_secret(name: &str) -> bool {
    const NAME_BYTES_USUAL: usize = 20;
    name.len() >= NAME_BYTES_USUAL
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && name.bytes().any(|b| b.is_ascii_digit())
}

/// Why a text cannot be a credential.
fn flaw(text: &str) -> Option<&'static str> {
    if text.len() > SECRET_BYTES_MAX {
        Some("is longer than 16 KiB")
    } else if text.trim().is_empty() {
        Some("is empty")
    } else if !text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        Some(
            "holds line breaks, control characters or characters outside ASCII, which no header can carry",
        )
    } else {
        None
    }
}
