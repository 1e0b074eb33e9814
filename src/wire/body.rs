//! The body of a message, taken out of its framing as it comes, and put into chunks (RFC 9112, 6 and 7).

use bytes::{Buf, Bytes, BytesMut};

use super::Malformed;

/// Where a body ends (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// Longest line of a chunk's size with its extensions and its end. Nobody sends extensions; a few KiB are what others allow.
const SIZE_LINE_MAX: usize = 4 << 10;
/// Most bytes of trailers, which are dropped, with the ends of their lines.
const TRAILERS_MAX: usize = 16 << 10;

/// Reads a body.
#[derive(Debug)]
pub struct BodyReader {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are still to come.
    Length(u64),
    UntilClose,
    /// The line with the size of the next chunk.
    Size,
    /// So many bytes of the chunk are still to come.
    Chunk(u64),
    /// The end of the chunk's line.
    ChunkEnd,
    /// Lines after the last chunk, of which so many bytes were read.
    Trailers(usize),
    Ended,
}

/// What the bytes at hand held.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of the body.
    Part(Bytes),
    /// Nothing whole: more has to be read.
    NeedMore,
    /// The body has ended before these bytes.
    Ended,
}

impl BodyReader {
    /// The reader of a body that is framed so.
    pub fn new(framing: Framing) -> BodyReader {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Ended,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        BodyReader { state }
    }

    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes the next part from the front of `bytes`, without copying it.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Step, Malformed> {
        loop {
            match self.state {
                State::Ended => return Ok(Step::Ended),
                _ if bytes.is_empty() => return Ok(Step::NeedMore),
                State::UntilClose => return Ok(Step::Part(bytes.split().freeze())),
                State::Length(left) => {
                    let (part, left) = split(bytes, left);
                    self.state = if left == 0 {
                        State::Ended
                    } else {
                        State::Length(left)
                    };
                    return Ok(Step::Part(part));
                }
                State::Chunk(left) => {
                    let (part, left) = split(bytes, left);
                    self.state = if left == 0 {
                        State::ChunkEnd
                    } else {
                        State::Chunk(left)
                    };
                    // The end of the answer often lies right behind its last part, and who has it may let the connection go.
                    self.skip_to_data(bytes)?;
                    return Ok(Step::Part(part));
                }
                State::Size | State::ChunkEnd | State::Trailers(_) => {
                    if !self.advance(bytes)? {
                        return Ok(Step::NeedMore);
                    }
                }
            }
        }
    }

    /// The connection has ended: whether the body had, too.
    pub fn close(&mut self) -> Result<(), Malformed> {
        match self.state {
            State::UntilClose | State::Ended => {
                self.state = State::Ended;
                Ok(())
            }
            _ => Err(Malformed("shorter than its framing says")),
        }
    }

    fn skip_to_data(&mut self, bytes: &mut BytesMut) -> Result<(), Malformed> {
        while matches!(
            self.state,
            State::Size | State::ChunkEnd | State::Trailers(_)
        ) && self.advance(bytes)?
        {}
        Ok(())
    }

    /// One step through what is no data; `false` when more bytes are needed.
    fn advance(&mut self, bytes: &mut BytesMut) -> Result<bool, Malformed> {
        match self.state {
            State::ChunkEnd => {
                let Some(line) = bytes.first_chunk::<2>() else {
                    return match bytes.first() {
                        None | Some(b'\r') => Ok(false),
                        Some(_) => Err(Malformed("a chunk longer than its size")),
                    };
                };
                if line != b"\r\n" {
                    return Err(Malformed("a chunk longer than its size"));
                }
                bytes.advance(2);
                self.state = State::Size;
            }
            State::Size => {
                let Some(size) = take_size(bytes)? else {
                    return Ok(false);
                };
                self.state = match size {
                    0 => State::Trailers(0),
                    size => State::Chunk(size),
                };
            }
            State::Trailers(seen) => {
                let Some(length) = take_line(bytes)? else {
                    // The CR of the last, blank line may be here already; it counts for nothing.
                    return match seen + bytes.len() > TRAILERS_MAX + 1 {
                        true => Err(Malformed("trailers over their bound")),
                        false => Ok(false),
                    };
                };
                self.state = match length {
                    0 => State::Ended,
                    length if seen + length + 2 > TRAILERS_MAX => {
                        return Err(Malformed("trailers over their bound"));
                    }
                    length => State::Trailers(seen + length + 2),
                };
            }
            State::Length(_) | State::UntilClose | State::Chunk(_) | State::Ended => {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// At most `left` bytes from the front, and what is left of them.
fn split(bytes: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let part = bytes.split_to(length).freeze();
    (
        part,
        left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX)),
    )
}

/// The size of a chunk, with its line taken; `None` while the line is not whole.
fn take_size(bytes: &mut BytesMut) -> Result<Option<u64>, Malformed> {
    // httparse takes a line without digits for a zero, which is the end of the body.
    if bytes
        .first()
        .is_some_and(|first| !first.is_ascii_hexdigit())
    {
        return Err(Malformed("a chunk's size that is none"));
    }
    match httparse::parse_chunk_size(bytes) {
        // The same bound whether the line comes at once or byte by byte.
        Ok(httparse::Status::Complete((length, _))) if length > SIZE_LINE_MAX => {
            Err(Malformed("a chunk's size over its bound"))
        }
        // httparse takes any byte for a part of an extension; other readers end the line there.
        Ok(httparse::Status::Complete((length, _))) if has_bare_end(bytes, length) => {
            Err(Malformed("a chunk's size with a line feed"))
        }
        Ok(httparse::Status::Complete((length, size))) => {
            bytes.advance(length);
            Ok(Some(size))
        }
        Ok(httparse::Status::Partial) if bytes.len() > SIZE_LINE_MAX => {
            Err(Malformed("a chunk's size over its bound"))
        }
        Ok(httparse::Status::Partial) if has_bare_end(bytes, bytes.len() + CRLF.len()) => {
            Err(Malformed("a chunk's size with a line feed"))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(Malformed("a chunk's size that is none")),
    }
}

/// Whether a line of this length has a line feed before its end.
fn has_bare_end(bytes: &[u8], length: usize) -> bool {
    let inside = length.saturating_sub(CRLF.len()).min(bytes.len());
    let inside = bytes.get(..inside).unwrap_or_default();
    memchr::memchr(b'\n', inside).is_some()
}

/// Takes a line and gives its length without the end; `None` while it is not whole.
fn take_line(bytes: &mut BytesMut) -> Result<Option<usize>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return Ok(None);
    };
    let Some(length) = end
        .checked_sub(1)
        .filter(|at| bytes.get(*at) == Some(&b'\r'))
    else {
        return Err(Malformed("a trailer's line that ends without CR"));
    };
    bytes.advance(end + 1);
    Ok(Some(length))
}

/// The line before a chunk of so many bytes.
pub fn write_size(out: &mut BytesMut, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (size >> (4 * place)) & 0xf;
        out.extend(DIGITS.get(digit));
    }
    out.extend_from_slice(CRLF);
}

/// The end of a line, and of a chunk.
pub const CRLF: &[u8] = b"\r\n";
/// The end of a body in chunks.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
