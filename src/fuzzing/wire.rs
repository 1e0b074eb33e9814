//! HTTP/1.1 as upstreams speak it: heads and bodies of answers, heads of requests.
//!
//! Not here: what an answer proves ([`super::envelope`]).

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};

use super::choice;
use crate::wire::Malformed;
use crate::wire::answer::{self as head, HEADERS_MAX, keep_alive_timeout};
use crate::wire::body::{BodyReader, Framing, Step};
use crate::wire::request::write_head;

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
