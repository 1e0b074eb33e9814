//! The headers of a form: the boundary of its content type, and what the header of a part says.
//!
//! Not here: where parts begin and end ([`super::multipart`]). Servers read these headers with parsers of many kinds. What two of them
//! could read differently is refused, so that the name of a part is what every provider's parser sees.

use memchr::memchr2;

/// Bytes of a content type. A boundary has at most 70 (RFC 2046).
const CONTENT_TYPE_BYTES_MAX: usize = 1024;
/// Bytes of a boundary (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of the header of one part. Names of files are a few hundred.
pub(super) const PART_HEADER_BYTES_MAX: usize = 8 << 10;
/// Lines in the header of one part. Real ones have two or three.
const PART_HEADER_LINES_MAX: usize = 16;

/// What is wrong, in a few words.
pub(super) type What = &'static str;

/// The boundary that a content type names; `None` unless it is that of a form and names exactly one.
pub(super) fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    if content_type.len() > CONTENT_TYPE_BYTES_MAX {
        return None;
    }
    let end = memchr::memchr(b';', content_type)?;
    let (media, rest) = content_type.split_at_checked(end)?;
    if !media
        .trim_ascii()
        .eq_ignore_ascii_case(b"multipart/form-data")
    {
        return None;
    }
    let mut found = None;
    let mut params = Params { rest };
    while let Some(param) = params.next().ok()? {
        if extends(param.name, b"boundary") {
            return None;
        }
        if param.name.eq_ignore_ascii_case(b"boundary") && found.replace(param.value).is_some() {
            return None;
        }
    }
    found.filter(|boundary| is_boundary(boundary))
}

fn is_boundary(text: &[u8]) -> bool {
    let of_set = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    (1..=BOUNDARY_BYTES_MAX).contains(&text.len())
        && text.iter().all(of_set)
        && text.last() != Some(&b' ')
}

/// What the header of a part says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Name of the field.
    pub name: &'a [u8],
    /// Whether it is a file.
    pub is_file: bool,
    /// Whether its bytes are encoded once more.
    pub is_encoded: bool,
    /// Bytes of the header, with the blank line that ends it.
    pub header_bytes: usize,
}

impl<'a> Part<'a> {
    /// Reads the header that a part begins with.
    pub fn read(part: &'a [u8]) -> Result<Part<'a>, What> {
        let (mut named, mut is_encoded, mut at) = (None, false, 0);
        for _ in 0..PART_HEADER_LINES_MAX {
            let (line, after) = line(part, at)?;
            if line.is_empty() {
                let (name, is_file) = named.ok_or("a part has no name")?;
                return Ok(Part {
                    name,
                    is_file,
                    is_encoded,
                    header_bytes: after,
                });
            }
            at = after;
            let (name, value) = field(line)?;
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if named.replace(disposition(value)?).is_some() {
                    return Err("a part has two names");
                }
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
                let plain: [&[u8]; 3] = [b"7bit", b"8bit", b"binary"];
                is_encoded |= !plain.iter().any(|known| value.eq_ignore_ascii_case(known));
            }
        }
        Err("a part has too many header lines")
    }
}

/// The line at a position, and where the next one begins.
fn line(part: &[u8], at: usize) -> Result<(&[u8], usize), What> {
    let end = part.len().min(PART_HEADER_BYTES_MAX);
    let rest = part.get(at..end).unwrap_or_default();
    let Some(len) = memchr2(b'\r', b'\n', rest) else {
        return Err("the header of a part does not end");
    };
    match (rest.split_at_checked(len), rest.get(len..len + 2)) {
        (Some((line, _)), Some(b"\r\n")) => Ok((line, at + len + 2)),
        _ => Err("a header line of a part does not end with CR LF"),
    }
}

/// Name and value of a header line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), What> {
    let colon = memchr::memchr(b':', line).ok_or("a header line of a part has no colon")?;
    let (name, rest) = line.split_at_checked(colon).unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_graphic();
    if name.is_empty() || !name.iter().all(is_name) {
        return Err("a header line of a part is folded or has no name");
    }
    let value = rest.get(1..).unwrap_or_default();
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if value.iter().any(is_control) {
        return Err("the header of a part has control characters");
    }
    Ok((name, value.trim_ascii()))
}

/// Name of the field, and whether it is a file.
fn disposition(value: &[u8]) -> Result<(&[u8], bool), What> {
    const BAD: What = "a content-disposition is not that of a form";
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let (kind, rest) = value.split_at_checked(end).ok_or(BAD)?;
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return Err(BAD);
    }
    let (mut name, mut is_file) = (None, false);
    let mut params = Params { rest };
    while let Some(param) = params.next()? {
        if extends(param.name, b"name") || (is(&param, b"name") && param.is_escaped) {
            return Err("the name of a part is encoded");
        }
        if is(&param, b"name") && name.replace(param.value).is_some() {
            return Err("a part has two names");
        }
        is_file |= is(&param, b"filename") || extends(param.name, b"filename");
    }
    Ok((name.ok_or("a part has no name")?, is_file))
}

fn is(param: &Param<'_>, name: &[u8]) -> bool {
    param.name.eq_ignore_ascii_case(name)
}

/// Whether a parameter is another spelling of one (RFC 2231: `name*`, `name*0`).
fn extends(found: &[u8], name: &[u8]) -> bool {
    match found.split_at_checked(name.len()) {
        Some((start, [b'*', ..])) => start.eq_ignore_ascii_case(name),
        Some(_) | None => false,
    }
}

/// One parameter of a header.
struct Param<'a> {
    name: &'a [u8],
    /// The value without its quotes; escapes are not decoded.
    value: &'a [u8],
    is_escaped: bool,
}

/// The parameters after a header's first word.
struct Params<'a> {
    rest: &'a [u8],
}

impl<'a> Params<'a> {
    fn next(&mut self) -> Result<Option<Param<'a>>, What> {
        const BAD: What = "a header has parameters that cannot be read";
        self.rest = self.rest.trim_ascii_start();
        let Some((first, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        if *first != b';' {
            return Err(BAD);
        }
        self.rest = rest.trim_ascii_start();
        if self.rest.is_empty() {
            return Ok(None);
        }
        let equals = memchr::memchr(b'=', self.rest).ok_or(BAD)?;
        let (name, rest) = self.rest.split_at_checked(equals).ok_or(BAD)?;
        let is_name = |byte: &u8| byte.is_ascii_graphic() && !b";\",".contains(byte);
        if name.is_empty() || !name.iter().all(is_name) {
            return Err(BAD);
        }
        let rest = rest.get(1..).unwrap_or_default();
        let len = match rest.first() {
            Some(b'"') => quoted(rest).ok_or(BAD)?,
            _ => token(rest).ok_or(BAD)?,
        };
        let (raw, rest) = rest.split_at_checked(len).ok_or(BAD)?;
        self.rest = rest;
        let bare = raw
            .strip_prefix(b"\"")
            .and_then(|raw| raw.strip_suffix(b"\""));
        let value = bare.unwrap_or(raw);
        Ok(Some(Param {
            name,
            value,
            is_escaped: value.contains(&b'\\'),
        }))
    }
}

/// Length of a quoted text, quotes included. Not all parsers know escaped quotes: where one of them could find another
/// parameter after such a quote, the text is refused.
fn quoted(text: &[u8]) -> Option<usize> {
    let (mut at, mut has_quote) = (1, false);
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => {
                has_quote |= *text.get(at + 1)? == b'"';
                at += 2;
            }
            b';' if has_quote => return None,
            _ => at += 1,
        }
    }
}

/// Length of a value without quotes.
fn token(text: &[u8]) -> Option<usize> {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';';
    let len = text.iter().position(ends).unwrap_or(text.len());
    let value = text.get(..len)?;
    let is_plain = |byte: &u8| !byte.is_ascii_control() && !b"\"\\,".contains(byte);
    (len > 0 && value.iter().all(is_plain)).then_some(len)
}
