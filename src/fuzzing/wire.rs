//! HTTP/1.1 as upstreams and clients speak it: heads and bodies of answers, heads of requests.
//!
//! Not here: what an answer proves ([`super::envelope`]), what a request asks for ([`super::request`]).

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::choice;
use crate::wire::answer::{self as head, HEADERS_MAX, keep_alive_timeout};
use crate::wire::body::{BodyReader, Framing, Step};
use crate::wire::request::{self as asked, Head, NoHead, write_head};
use crate::wire::{HeadSearch, Malformed};

/// What a reader made of bytes: what it gave, whether it has ended, and what it left.
type Read<T> = Result<(T, bool, Vec<u8>), Malformed>;

/// Answers: the same wherever the reads end, head and body; what stands behind a body is left alone. Requests: nothing breaks out of a head.
pub fn wire(input: &[u8]) {
    let (size, bytes) = choice(input);
    let whole = heads(bytes, usize::MAX);
    assert_eq!(whole, heads(bytes, size), "a head in pieces of {size}");
    assert_eq!(whole, heads(bytes, 1), "a head in single bytes");
    let length = u64::try_from(size).unwrap_or_default();
    for framing in [
        Framing::Chunked,
        Framing::Length(length),
        Framing::UntilClose,
        Framing::Empty,
    ] {
        let whole = body(framing, bytes, usize::MAX);
        for size in [size, 1] {
            same(&whole, &body(framing, bytes, size));
        }
        if let Ok((read, has_ended, left)) = &whole {
            assert!(read.len() + left.len() <= bytes.len(), "more than came");
            let unframed = matches!(framing, Framing::Length(_) | Framing::UntilClose);
            let all = [read.as_slice(), left.as_slice()].concat();
            assert!(!unframed || all == bytes, "bytes were lost");
            let is_whole = length == u64::try_from(read.len()).unwrap_or_default();
            assert!(!matches!(framing, Framing::Length(_)) || *has_ended == is_whole);
        }
    }
    chunks_return(bytes, size);
    request(bytes);
}

/// The parts of a body that matter are those that were given before an error; where one broke, both broke.
fn same(one: &Read<Vec<u8>>, other: &Read<Vec<u8>>) {
    match (one, other) {
        (Ok(one), Ok(other)) => assert_eq!(one, other, "a body in pieces"),
        (Err(_), Err(_)) => {}
        (one, other) => assert!(one.is_ok() == other.is_ok(), "{one:?} and {other:?}"),
    }
}

/// Status, headers, framing and whether the connection is kept, as text.
fn heads(bytes: &[u8], size: usize) -> Read<Option<String>> {
    let mut held = BytesMut::new();
    let mut found = None;
    for piece in bytes.chunks(size.clamp(1, bytes.len().max(1))) {
        held.extend_from_slice(piece);
        if found.is_none()
            && let Some(head) = head::take(&mut held)?
        {
            assert!(head.headers.len() <= HEADERS_MAX, "too many headers");
            let _ = keep_alive_timeout(&head.headers);
            let ends = matches!(head.framing, Framing::UntilClose);
            assert!(!(ends && head.keeps), "kept after its end");
            found = Some(format!("{head:?}"));
        }
    }
    Ok((found.clone(), found.is_some(), held.to_vec()))
}

fn body(framing: Framing, bytes: &[u8], size: usize) -> Read<Vec<u8>> {
    let (mut reader, mut held, mut body) = (BodyReader::new(framing), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(size.clamp(1, bytes.len().max(1))) {
        held.extend_from_slice(piece);
        while let Step::Part(part) = reader.take(&mut held)? {
            assert!(!part.is_empty(), "an empty part would end a chunked answer");
            body.extend_from_slice(&part);
        }
    }
    // What is held of the framing depends on where the reads ended; what stands behind the end does not.
    let left = match reader.has_ended() {
        true => held.to_vec(),
        false => Vec::new(),
    };
    Ok((body, reader.has_ended(), left))
}

/// What was put into chunks comes out of them, with extensions and trailers beside it.
fn chunks_return(bytes: &[u8], size: usize) {
    let mut sent = Vec::new();
    for part in bytes.chunks(size.max(1)) {
        sent.extend_from_slice(format!("{:x};e={size}\r\n", part.len()).as_bytes());
        sent.extend_from_slice(part);
        sent.extend_from_slice(b"\r\n");
    }
    sent.extend_from_slice(b"0\r\nt: x\r\n\r\nbehind");
    for step in [usize::MAX, size, 1] {
        let read = body(Framing::Chunked, &sent, step);
        assert_eq!(
            read,
            Ok((bytes.to_vec(), true, b"behind".to_vec())),
            "steps of {step}"
        );
    }
}

/// A head has the lines that it was given, or is none.
fn request(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(rest.as_bytes()));
    let headers: Vec<_> = value
        .into_iter()
        .map(|value| (HeaderName::from_static("a"), value))
        .collect();
    for (path, authority) in [(path, "h"), ("/", path)] {
        let mut out = BytesMut::new();
        match write_head(&mut out, "POST", path, authority, &headers) {
            Some(_) => {
                let lines = out.windows(2).filter(|pair| *pair == b"\r\n").count();
                assert_eq!(lines, 3 + headers.len(), "{out:?}");
                assert!(out.ends_with(b"\r\n\r\n"), "{out:?}");
            }
            None => assert!(out.is_empty(), "a refused head left bytes"),
        }
    }
}

/// Requests of clients: the same wherever the reads end, with one host and one end of the body; written anew, it is the same request.
pub fn request_head(input: &[u8]) {
    let (size, bytes) = choice(input);
    let whole = came(bytes, usize::MAX);
    for size in [size, 1] {
        let pieces = came(bytes, size);
        let is_same = match (&whole, &pieces) {
            (Ok(Some(one)), Ok(Some(other))) => format!("{one:?}") == format!("{other:?}"),
            // A fault in the middle of a head is seen with its end, which may not have come.
            (Err(_), Err(_) | Ok(None)) | (Ok(None), Ok(None)) => true,
            _ => false,
        };
        assert!(is_same, "{whole:?}, in pieces of {size} {pieces:?}");
    }
    if let Ok(Some((head, left))) = whole {
        assert!(bytes.ends_with(&left), "what stands behind a head");
        assert!(
            head.parts.headers.len() <= asked::HEADERS_MAX,
            "too many headers"
        );
        one_meaning(&head);
        written_anew(&head);
    }
}

/// A head and what stands behind it, from a connection that reads so much at once.
fn came(bytes: &[u8], size: usize) -> Result<Option<(Head, Vec<u8>)>, NoHead> {
    let (mut held, mut search, mut found) = (BytesMut::new(), HeadSearch::default(), None);
    for piece in bytes.chunks(size.clamp(1, bytes.len().max(1))) {
        held.extend_from_slice(piece);
        if found.is_none() && search.is_due(&held) {
            found = asked::take(&mut held)?;
        }
    }
    Ok(found.map(|head| (head, held.to_vec())))
}

/// One host, and one place where the body ends.
fn one_meaning(head: &Head) {
    let headers = &head.parts.headers;
    let hosts = headers.get_all(HOST).iter().count();
    let named = head.parts.uri.authority();
    assert!(hosts <= 1, "two hosts");
    assert!(
        hosts == 1 || named.is_some() || head.parts.version == Version::HTTP_10,
        "no host"
    );
    if let (Some(named), Some(host)) = (named, headers.get(HOST)) {
        let host = host.as_bytes();
        assert!(
            named.as_str().as_bytes().eq_ignore_ascii_case(host),
            "another host"
        );
    }
    let has_chunks = headers.contains_key(TRANSFER_ENCODING);
    let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
    assert!(!has_chunks || lengths.is_empty(), "two framings");
    assert_eq!(has_chunks, head.framing == Framing::Chunked);
    let said = |value: &HeaderValue| value.to_str().ok().and_then(|text| text.parse().ok());
    let length = match head.framing {
        Framing::Length(length) => length,
        Framing::Empty | Framing::Chunked => 0,
        Framing::UntilClose => u64::MAX,
    };
    assert!(
        lengths.iter().all(|value| said(value) == Some(length)),
        "{lengths:?}"
    );
}

/// The same request again, and nothing beside it.
fn written_anew(head: &Head) {
    let parts = &head.parts;
    let Some(path) = parts.uri.path_and_query() else {
        return;
    };
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.filter(|host| !host.is_empty()).unwrap_or("h");
    let others = parts.headers.iter().filter(|(name, _)| *name != HOST);
    let headers: Vec<_> = others
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut out = BytesMut::new();
    let wrote = write_head(
        &mut out,
        parts.method.as_str(),
        path.as_str(),
        host,
        &headers,
    );
    if wrote.is_none() {
        assert!(out.is_empty(), "a refused head left bytes");
        return;
    }
    let again = asked::take(&mut out);
    assert!(matches!(again, Ok(Some(_))), "{head:?} becomes {again:?}");
    let Ok(Some(again)) = again else { return };
    assert!(out.is_empty(), "something stands behind it");
    assert_eq!(again.parts.method, parts.method);
    assert_eq!(again.parts.uri.path_and_query(), Some(path));
    assert_eq!(again.framing, head.framing);
    let mut sent = parts.headers.clone();
    let mut seen = again.parts.headers;
    let hosts = (sent.remove(HOST), seen.remove(HOST));
    assert!(
        hosts
            .1
            .is_some_and(|seen| seen.as_bytes() == host.as_bytes()),
        "another host"
    );
    assert_eq!(seen, sent);
}
