//! Splits a byte stream into the frames of AWS's event-stream encoding, wherever the chunks end.
//!
//! A frame is: total length, length of the headers, checksum of these eight bytes; the headers; the payload; checksum of all before it.
//! Numbers are big-endian, checksums are CRC-32. Not here: what a frame means ([`super::bedrock`]). Both checksums are verified. Memory
//! is bounded: a frame over the bound ends the parsing, and so does one that breaks the encoding; [`EventStreamParser::lost`] says which.

/// Bytes before the headers.
const PRELUDE: usize = 12;
/// Bytes of a frame without headers and payload.
const FRAME_MIN: usize = PRELUDE + 4;
/// Headers of one frame. Real frames have three.
const HEADERS_MAX: usize = 32;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its headers that are text, in order.
    headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The value of a header that is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Why nothing more is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// A frame was larger than the bound.
    OverBound,
    /// A length, a checksum or a header is wrong.
    Broken,
}

/// An incremental parser.
#[derive(Debug)]
pub struct EventStreamParser {
    held: Vec<u8>,
    frame_max: usize,
    lost: Option<Lost>,
}

impl EventStreamParser {
    /// A parser for frames of at most `frame_max` bytes.
    pub fn new(frame_max: usize) -> EventStreamParser {
        EventStreamParser {
            held: Vec::new(),
            frame_max,
            lost: None,
        }
    }

    /// Why parsing ended, if it did. Nothing is parsed from then on.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Whether a frame was begun and is not complete.
    pub fn is_inside_frame(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the next bytes and gives out the frames that they complete.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame)) {
        let mut rest = bytes;
        while self.lost.is_none() && !rest.is_empty() {
            let wanted = match self.wanted() {
                Ok(wanted) => wanted,
                Err(lost) => return self.lose(lost),
            };
            let missing = wanted.saturating_sub(self.held.len());
            let (part, tail) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
            self.held.extend_from_slice(part);
            rest = tail;
            if let Err(lost) = self.complete(sink) {
                self.lose(lost);
            }
        }
    }

    /// Gives out the frame if it is whole. A prelude is judged as soon as it is there.
    fn complete(&mut self, sink: &mut impl FnMut(Frame)) -> Result<(), Lost> {
        let wanted = self.wanted()?;
        if self.held.len() < PRELUDE || self.held.len() < wanted {
            return Ok(());
        }
        sink(read_frame(&self.held).ok_or(Lost::Broken)?);
        self.held.clear();
        Ok(())
    }

    /// Bytes that must be held before the next step: a prelude, then the frame that it announces.
    fn wanted(&self) -> Result<usize, Lost> {
        let Some(prelude) = self.held.first_chunk::<PRELUDE>() else {
            return Ok(PRELUDE);
        };
        let prelude = Prelude::read(prelude).ok_or(Lost::Broken)?;
        match prelude.total > self.frame_max {
            true => Err(Lost::OverBound),
            false => Ok(prelude.total),
        }
    }

    fn lose(&mut self, lost: Lost) {
        self.lost = Some(lost);
        self.held = Vec::new();
    }
}

/// The lengths that a frame begins with.
struct Prelude {
    total: usize,
    headers: usize,
}

impl Prelude {
    /// `None` if the checksum is wrong, or the lengths contradict each other.
    fn read(bytes: &[u8; PRELUDE]) -> Option<Prelude> {
        let (lengths, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(lengths) != u32::from_be_bytes(*checksum) {
            return None;
        }
        let (total, headers) = lengths.split_first_chunk::<4>()?;
        let total = usize::try_from(u32::from_be_bytes(*total)).ok()?;
        let headers = usize::try_from(u32::from_be_bytes(*headers.first_chunk()?)).ok()?;
        let fits = headers.checked_add(FRAME_MIN)? <= total;
        fits.then_some(Prelude { total, headers })
    }
}

/// A whole frame; `None` if it breaks the encoding.
fn read_frame(bytes: &[u8]) -> Option<Frame> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(covered) != u32::from_be_bytes(*checksum) {
        return None;
    }
    let (prelude, rest) = covered.split_first_chunk::<PRELUDE>()?;
    let prelude = Prelude::read(prelude)?;
    let (headers, payload) = rest.split_at_checked(prelude.headers)?;
    Some(Frame {
        headers: read_headers(headers)?,
        payload: payload.to_vec(),
    })
}

fn read_headers(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let (mut rest, mut found) = (bytes, Vec::new());
    for _ in 0..=HEADERS_MAX {
        let Some((length, after)) = rest.split_first() else {
            return Some(found);
        };
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (value, after) = read_value(after)?;
        if let Some(value) = value {
            found.push((text(name)?, text(value)?));
        }
        rest = after;
    }
    None
}

/// The value of a header if it is text, and what follows it.
fn read_value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let fixed = match kind {
        // True and false have no bytes of their own.
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        // A long number, and a timestamp.
        5 | 8 => 8,
        // Bytes and text have a length before them.
        6 | 7 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (value, rest) = rest.split_at_checked(length)?;
            return Some(((*kind == 7).then_some(value), rest));
        }
        // A UUID.
        9 => 16,
        _ => return None,
    };
    let (_, rest) = rest.split_at_checked(fixed)?;
    Some((None, rest))
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// A frame with headers of text, as a server sends it. `None` if it would be larger than the encoding allows.
pub fn encode(headers: &[(&str, &str)], payload: &[u8]) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        lines.push(u8::try_from(name.len()).ok()?);
        lines.extend_from_slice(name.as_bytes());
        lines.push(7);
        lines.extend_from_slice(&u16::try_from(value.len()).ok()?.to_be_bytes());
        lines.extend_from_slice(value.as_bytes());
    }
    let total = FRAME_MIN
        .checked_add(lines.len())?
        .checked_add(payload.len())?;
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&u32::try_from(total).ok()?.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(lines.len()).ok()?.to_be_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&lines);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    Some(frame)
}
