//! Answers on a client's HTTP/1.1 connection: their heads, and where their bodies end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, DATE, HeaderMap, UPGRADE};
use http::{Method, StatusCode, Version};
use pingora_core::protocols::http::date::get_cached_date;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::Piece;
use super::http1::{Http1, broke};
use crate::wire::answer::{has_no_body, write_head};
use crate::wire::body::{CRLF, LAST_CHUNK, write_size};

/// Parts of a body that are copied behind what is written before them, so that a usual answer leaves in one piece.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Room for a head.
const HEAD_ROOM: usize = 1 << 10;
/// Room for the size of a chunk, and the ends of it.
const CHUNK_ROOM: usize = 32;
/// Pieces that one write takes: what was gathered, a part, and the end of its chunk.
const SLICES: usize = 3;

/// Where an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing was written.
    Due,
    /// So many bytes are still to be written.
    Length(u64),
    /// Chunks are.
    Chunked,
    /// Its end is that of the connection.
    UntilClose,
    /// The connection speaks something else from now on.
    Switched,
    /// All of it was written.
    Ended,
    /// A part of it could not be written.
    Broken,
}

impl Http1 {
    /// Writes a piece of the answer, in as few system calls as it takes.
    pub async fn write(&mut self, piece: Piece, time: Duration) -> Result<()> {
        let length = piece.body_len();
        // A part that is larger is written from where it is.
        let copied = if length <= COPY_BYTES_MAX { length } else { 0 };
        let room = piece.parts.len() * CHUNK_ROOM + copied;
        let head_room = if piece.header.is_some() { HEAD_ROOM } else { 0 };
        let mut out = BytesMut::with_capacity(head_room + room);
        if let Some(header) = &piece.header {
            let whole = piece.ends.then_some(length);
            self.begin(&mut out, header, whole);
        }
        for part in piece.parts.iter().filter(|part| !part.is_empty()) {
            self.count(part)?;
            let is_chunk = self.answer == Answer::Chunked;
            if is_chunk {
                write_size(&mut out, part.len());
            }
            let end = if is_chunk { CRLF } else { &[] };
            if out.len() + part.len() + end.len() <= COPY_BYTES_MAX {
                out.extend_from_slice(part);
                out.extend_from_slice(end);
            } else {
                self.write_all(&[&out, part, end], time).await?;
                out.clear();
            }
        }
        if piece.ends {
            if self.answer == Answer::Chunked {
                out.extend_from_slice(LAST_CHUNK);
            }
            self.ends();
        }
        match out.is_empty() {
            true => Ok(()),
            false => self.write_all(&[&out], time).await,
        }
    }

    /// The head: the answer's own, and what this connection adds to it.
    fn begin(&mut self, out: &mut BytesMut, header: &ResponseHeader, whole: Option<usize>) {
        let is_current = self.request.version == Version::HTTP_11;
        let status = header.status;
        let mut own: [(&str, &[u8]); 3] = [("", &[]); 3];
        let mut count = 0;
        let mut add = |name, value| {
            if let Some(slot) = own.get_mut(count) {
                *slot = (name, value);
                count += 1;
            }
        };
        let length = whole.map(|whole| whole.to_string()).unwrap_or_default();
        self.answer = if status == StatusCode::SWITCHING_PROTOCOLS {
            Answer::Switched
        } else if has_no_body(status) || self.request.method == Method::HEAD {
            Answer::Length(0)
        } else if let Some(length) = length_of(&header.headers) {
            Answer::Length(length)
        } else if let Some(whole) = whole {
            add("content-length", length.as_bytes());
            Answer::Length(u64::try_from(whole).unwrap_or(u64::MAX))
        } else if is_current {
            add("transfer-encoding", b"chunked".as_slice());
            Answer::Chunked
        } else {
            self.keeps = false;
            Answer::UntilClose
        };
        self.keeps &= !self.has_early() && !self.is_stopping();
        // Who names a protocol has to say that this is about the connection (RFC 9110, 7.8).
        let upgrades = header.headers.contains_key(UPGRADE);
        match (self.answer, upgrades, self.keeps, is_current) {
            // Its own header says what happens to the connection.
            (Answer::Switched, ..) => {}
            (_, true, false, _) => add("connection", b"close, upgrade".as_slice()),
            (_, true, true, _) => add("connection", b"upgrade".as_slice()),
            (_, _, false, _) => add("connection", b"close".as_slice()),
            (_, _, true, false) => add("connection", b"keep-alive".as_slice()),
            (_, _, true, true) => {}
        }
        let date = get_cached_date();
        if !header.headers.contains_key(DATE) {
            add("date", date.as_bytes());
        }
        let own = own.get(..count).unwrap_or_default();
        write_head(out, status, &header.headers, own);
    }

    /// Counts a part against the answer's length. What goes beyond would be taken for the next answer.
    fn count(&mut self, part: &Bytes) -> Result<()> {
        if let Answer::Length(left) = self.answer {
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            let left = left.checked_sub(length).ok_or_else(|| {
                Error::explain(ErrorType::InternalError, "an answer longer than its length")
            })?;
            self.answer = Answer::Length(left);
        }
        Ok(())
    }

    /// The answer has its end, if it has its length.
    fn ends(&mut self) {
        // Whatever comes from now on is sent by a client that may have its answer.
        self.keeps &= !self.has_early();
        match self.answer {
            Answer::Length(0) | Answer::Chunked => self.answer = Answer::Ended,
            Answer::UntilClose => {
                self.answer = Answer::Ended;
                self.keeps = false;
            }
            Answer::Due | Answer::Length(_) | Answer::Switched | Answer::Broken => {
                self.keeps = false;
            }
            Answer::Ended => {}
        }
    }

    pub(super) async fn write_all(&mut self, pieces: &[&[u8]], time: Duration) -> Result<()> {
        let write = async {
            self.write_slices(pieces).await?;
            self.stream.flush().await
        };
        let error = match timeout(time, write).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(cause)) => {
                Error::because(ErrorType::WriteError, "writing an answer", cause).into_down()
            }
            Err(_) => broke(ErrorType::WriteTimedout, "the client reads too slowly"),
        };
        // A part of it may have left: whatever followed on this connection would be taken for the rest.
        self.keeps = false;
        self.answer = Answer::Broken;
        Err(error)
    }

    async fn write_slices(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut written = 0;
        while written < all {
            let stream = &mut self.stream;
            let wrote = std::future::poll_fn(|context| {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = left(pieces, written, &mut slices);
                let wrote = match slices.get(..count).unwrap_or_default() {
                    [one] => Pin::new(&mut *stream).poll_write(context, one),
                    several => Pin::new(&mut *stream).poll_write_vectored(context, several),
                };
                match wrote {
                    Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    wrote => wrote,
                }
            });
            written += wrote.await?;
        }
        Ok(())
    }
}

/// What is left of some pieces when so many bytes of them were written; how many slices that is.
fn left<'a>(pieces: &[&'a [u8]], written: usize, slices: &mut [IoSlice<'a>]) -> usize {
    let mut skipped = written;
    let mut count = 0;
    for piece in pieces {
        let rest = piece.get(skipped..).unwrap_or_default();
        skipped = skipped.saturating_sub(piece.len());
        if !rest.is_empty()
            && let Some(slot) = slices.get_mut(count)
        {
            *slot = IoSlice::new(rest);
            count += 1;
        }
    }
    count
}

fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
