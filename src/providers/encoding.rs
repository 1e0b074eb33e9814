//! Undoes the content encoding of an error body within a bound, before it is classified.
//!
//! Not here: good answers, which pass as they come. A body counts only when its stream ends where the body ends: what is cut off, goes
//! on, fails its checksum or grows over the bound is undecodable.

use std::borrow::Cow;
use std::io::Read;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::StreamingDecoder;

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
        b"br" => unbrotli(body, max).map(Cow::Owned),
        b"zstd" => unzstd(body, max).map(Cow::Owned),
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

fn unbrotli(body: &[u8], max: usize) -> Result<Vec<u8>, Undecodable> {
    let (mut left, mut read) = (body.len(), 0);
    let mut out = vec![0; max];
    let (mut room, mut written, mut total) = (out.len(), 0, 0);
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new(alloc(), alloc(), alloc());
    let result = BrotliDecompressStream(
        &mut left,
        &mut read,
        body,
        &mut room,
        &mut written,
        &mut out,
        &mut total,
        &mut state,
    );
    match result {
        BrotliResult::ResultSuccess if left == 0 => {
            out.truncate(written);
            Ok(out)
        }
        BrotliResult::ResultSuccess
        | BrotliResult::NeedsMoreInput
        | BrotliResult::NeedsMoreOutput
        | BrotliResult::ResultFailure => Err(Undecodable),
    }
}

fn unzstd(body: &[u8], max: usize) -> Result<Vec<u8>, Undecodable> {
    if !zstd_window_is_small(body) {
        return Err(Undecodable);
    }
    let mut decoder = StreamingDecoder::new(body).map_err(|_| Undecodable)?;
    let mut out = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .by_ref()
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_| Undecodable)?;
    let (rest, frame) = decoder.into_parts();
    let promised = frame.get_checksum_from_data();
    let intact = promised.is_none() || promised == frame.get_calculated_checksum();
    if out.len() <= max && frame.is_finished() && rest.is_empty() && intact {
        Ok(out)
    } else {
        Err(Undecodable)
    }
}

/// Whether a frame asks for a window of at most 8 MiB, which is what RFC 9659 lets a content encoding ask for. The decoder would
/// reserve more at once. A frame in a single segment gives its size instead; four bytes of size or more are over every bound here.
fn zstd_window_is_small(frame: &[u8]) -> bool {
    let [_, _, _, _, descriptor, next, ..] = frame else {
        return false;
    };
    let single_segment = descriptor & 0x20 != 0;
    if single_segment {
        descriptor >> 6 < 2
    } else {
        let (exponent, mantissa) = (next >> 3, next & 7);
        exponent < 13 || (exponent == 13 && mantissa == 0)
    }
}
