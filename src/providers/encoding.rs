//! Undoes the content encoding of an error body within a bound, before it is classified.
//!
//! Not here: good answers, which pass as they come. `br` and `zstd` are not decoded: an answer that uses them is malformed to the
//! classifier and therefore never certified.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::answer::Single;

/// The body cannot be decoded fully within the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecodable;

/// Decodes `body` as its `content-encoding` says, to at most `max` bytes.
pub fn decode<'b>(
    encoding: Single<'_>,
    body: &'b [u8],
    max: usize,
) -> Result<Cow<'b, [u8]>, Undecodable> {
    let name = match encoding {
        Single::Absent => return Ok(Cow::Borrowed(body)),
        Single::Repeated => return Err(Undecodable),
        Single::One(name) => name.to_ascii_lowercase(),
    };
    match name.as_slice() {
        b"" | b"identity" => Ok(Cow::Borrowed(body)),
        b"gzip" | b"x-gzip" => gunzip(body, max).map(Cow::Owned),
        b"deflate" => inflate(body, max).map(Cow::Owned),
        _ => Err(Undecodable),
    }
}

fn gunzip(body: &[u8], max: usize) -> Result<Vec<u8>, Undecodable> {
    let mut decoder = GzDecoder::new(body);
    let mut out = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .by_ref()
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_| Undecodable)?;
    if out.len() > max || !decoder.into_inner().is_empty() {
        return Err(Undecodable);
    }
    Ok(out)
}

/// `deflate` means the zlib format, but some servers send the bare stream: the header tells them apart.
fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, Undecodable> {
    let zlib = match body {
        [method, flags, ..] => {
            method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
        }
        [] | [_] => return Err(Undecodable),
    };
    let mut state = Decompress::new(zlib);
    let mut out = Vec::with_capacity(max.saturating_add(1));
    let status = state
        .decompress_vec(body, &mut out, FlushDecompress::Finish)
        .map_err(|_| Undecodable)?;
    let whole = status == Status::StreamEnd && usize::try_from(state.total_in()) == Ok(body.len());
    if whole && out.len() <= max {
        Ok(out)
    } else {
        Err(Undecodable)
    }
}
