//! HTTP/1.1 answers as bytes: one message, wherever the reads end, or an error. R-X and R-D ids name what a wrong reading would break.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use rondo::core::limits::HEAD_BYTES_MAX;
use rondo::wire::Malformed;
use rondo::wire::answer::{self as head, HEADERS_MAX, Head};
use rondo::wire::body::{BodyReader, CRLF, Framing, LAST_CHUNK, Step, write_size};
use rondo::wire::request::write_head;

fn take(text: &str) -> Result<Option<Head>, Malformed> {
    head::take(&mut BytesMut::from(text))
}

fn headed(headers: &str) -> Result<Head, Malformed> {
    take(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).map(|head| head.expect("a whole head"))
}

/// What a body gives when its bytes come in pieces of `size`; `Err` when it breaks.
fn read(framing: Framing, bytes: &[u8], size: usize) -> Result<(Vec<u8>, bool, usize), Malformed> {
    let (mut reader, mut held, mut body) = (BodyReader::new(framing), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        held.extend_from_slice(piece);
        while let Step::Part(part) = reader.take(&mut held)? {
            assert!(!part.is_empty(), "an empty part would end a chunked answer");
            body.extend_from_slice(&part);
        }
    }
    Ok((body, reader.has_ended(), held.len()))
}

#[test]
fn a_head_says_where_its_body_ends() {
    // R-D1
    let cases = [
        ("content-length: 5\r\n", Framing::Length(5)),
        ("content-length: 0\r\n", Framing::Empty),
        (
            "content-length: 5\r\ncontent-length: 5\r\n",
            Framing::Length(5),
        ),
        ("transfer-encoding: chunked\r\n", Framing::Chunked),
        ("transfer-encoding: Chunked\r\n", Framing::Chunked),
        (
            "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
            Framing::Chunked,
        ),
        ("", Framing::UntilClose),
    ];
    for (headers, framing) in cases {
        assert_eq!(headed(headers).unwrap().framing, framing, "{headers:?}");
    }
    for status in [204, 304] {
        let head = take(&format!("HTTP/1.1 {status} N\r\ncontent-length: 9\r\n\r\n"));
        assert_eq!(head.unwrap().unwrap().framing, Framing::Empty, "{status}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_not_read() {
    // R-X2
    let cases = [
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: 5, 5\r\n",
        "content-length: +5\r\n",
        "content-length: -5\r\n",
        "content-length: 0x5\r\n",
        "content-length: 5 5\r\n",
        "content-length: \r\n",
        "content-length: 99999999999999999999\r\n",
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "content-length : 5\r\n",
        "a: b\r\n folded\r\n",
        "a\0: b\r\n",
        "a: \0\r\n",
        ": b\r\n",
    ];
    for headers in cases {
        assert!(headed(headers).is_err(), "{headers:?}");
    }
    for text in [
        "HTTP/2 200 OK\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
    ] {
        assert!(take(text).is_err(), "{text:?}");
    }
}

#[test]
fn two_framings_leave_one_and_no_kept_connection() {
    // R-X2
    let head = headed("transfer-encoding: chunked\r\ncontent-length: 5\r\n").unwrap();
    assert!(!head.keeps);
    assert!(!head.headers.contains_key("content-length"));
}

#[test]
fn a_connection_is_kept_when_both_sides_would() {
    // R-B5
    let kept = |head: &str| take(head).unwrap().unwrap().keeps;
    assert!(kept("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"));
    assert!(!kept(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n"
    ));
    assert!(!kept(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: x, Close\r\n\r\n"
    ));
    assert!(!kept("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(!kept(
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n"
    ));
    assert!(!kept("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n"));
    assert!(kept(
        "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive\r\n\r\n"
    ));
}

#[test]
fn a_head_is_bounded() {
    // R-B7
    let long = |length: usize| format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(length));
    assert!(take(&long(HEAD_BYTES_MAX - 64)).unwrap().is_some());
    assert!(take(&long(HEAD_BYTES_MAX)).is_err());
    let open = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(HEAD_BYTES_MAX));
    assert!(take(&open).is_err());
    let many = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert!(take(&many(HEADERS_MAX)).unwrap().is_some());
    assert!(take(&many(HEADERS_MAX + 1)).is_err());
}

#[test]
fn chunks_are_read_by_the_letter() {
    // R-D1 R-X2
    let good = "4;name=value\r\nwiki\r\n0A\r\npedia in c\r\n0\r\nx: y\r\n\r\n";
    assert_eq!(
        read(Framing::Chunked, good.as_bytes(), 999),
        Ok((b"wikipedia in c".to_vec(), true, 0))
    );
    let left = read(Framing::Chunked, b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK", 999);
    assert_eq!(left, Ok((b"a".to_vec(), true, 15)));
    let bad = [
        "\r\n",
        "-1\r\n",
        "+1\r\na\r\n",
        "0x1\r\na\r\n",
        " 1\r\na\r\n",
        "1_0\r\n",
        "g\r\n",
        "1\na\r\n",
        "1\r\nab\r\n",
        "1\r\na\n0\r\n",
        "1\r\naX",
        "11111111111111111\r\n",
        "0\r\nx: y\n\r\n",
    ];
    for text in bad {
        assert!(
            read(Framing::Chunked, text.as_bytes(), 999).is_err(),
            "{text:?}"
        );
        assert!(
            read(Framing::Chunked, text.as_bytes(), 1).is_err(),
            "{text:?} in bytes"
        );
    }
}

#[test]
fn lines_of_chunks_and_trailers_are_bounded() {
    // R-B7
    let size = format!("1;{}", "x".repeat(5000));
    assert!(read(Framing::Chunked, size.as_bytes(), 64).is_err());
    let one = format!("0\r\nx: {}", "y".repeat(20_000));
    assert!(read(Framing::Chunked, one.as_bytes(), 64).is_err());
    let many = format!("0\r\n{}", "x: y\r\n".repeat(4000));
    assert!(read(Framing::Chunked, many.as_bytes(), 64).is_err());
}

#[test]
fn bounds_do_not_depend_on_where_reads_end() {
    // R-B7: neither by an end of line more or less, nor by a line that comes at once.
    for length in (4090..4102).chain([5000]) {
        let size = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length - 2));
        agrees(&size, &format!("a size line of {length}"));
    }
    for length in 16_376..16_390 {
        let one = format!("0\r\nx: {}\r\n\r\n", "y".repeat(length - 3));
        agrees(&one, &format!("a trailer of {length}"));
        let two = format!("0\r\na: b\r\nx: {}\r\n\r\n", "y".repeat(length - 9));
        agrees(&two, &format!("two trailers of {length}"));
    }
}

#[track_caller]
fn agrees(text: &str, what: &str) {
    let whole = read(Framing::Chunked, text.as_bytes(), usize::MAX >> 1);
    let pieces = read(Framing::Chunked, text.as_bytes(), 1);
    assert_eq!(whole.is_ok(), pieces.is_ok(), "{what}");
}

#[test]
fn the_end_of_the_connection_ends_only_what_it_may() {
    // R-D1
    let closed = |framing: Framing, bytes: &[u8]| {
        let (mut reader, mut held) = (BodyReader::new(framing), BytesMut::from(bytes));
        while let Step::Part(_) = reader.take(&mut held).unwrap() {}
        reader.close()
    };
    assert!(closed(Framing::UntilClose, b"abc").is_ok());
    assert!(closed(Framing::Length(3), b"abc").is_ok());
    assert!(closed(Framing::Length(4), b"abc").is_err());
    assert!(closed(Framing::Chunked, b"3\r\nabc").is_err());
    assert!(closed(Framing::Chunked, b"3\r\nabc\r\n").is_err());
    assert!(closed(Framing::Chunked, b"3\r\nabc\r\n0\r\n").is_err());
    assert!(closed(Framing::Chunked, b"3\r\nabc\r\n0\r\n\r\n").is_ok());
}

#[test]
fn a_request_head_cannot_be_broken_out_of() {
    // R-X2
    let headers = [(HeaderName::from_static("a"), HeaderValue::from_static("b"))];
    let mut out = BytesMut::new();
    write_head(&mut out, "POST", "/v1/x?y=z", "host:1", &headers).unwrap();
    assert_eq!(
        &out[..],
        b"POST /v1/x?y=z HTTP/1.1\r\nhost: host:1\r\na: b\r\n\r\n"
    );
    for (path, authority) in [
        ("/ HTTP/1.1", "h"),
        ("/\r\nx: y", "h"),
        ("", "h"),
        ("/", "h\r\nx: y"),
        ("/", ""),
        ("/\u{7f}", "h"),
    ] {
        let mut out = BytesMut::new();
        assert_eq!(
            write_head(&mut out, "POST", path, authority, &headers),
            None
        );
        assert!(out.is_empty());
    }
}

#[test]
fn an_answer_that_is_written_is_read_again() {
    // R-D1
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-a", "1"), ("x-b", ""), ("x-a", "2"), ("x-c", "a, b")] {
        headers.append(name, HeaderValue::from_static(value));
    }
    for (status, own, framing, keeps) in [
        (
            200,
            &[("content-length", &b"3"[..])][..],
            Framing::Length(3),
            true,
        ),
        (
            200,
            &[("transfer-encoding", b"chunked")],
            Framing::Chunked,
            true,
        ),
        (
            429,
            &[("content-length", b"0"), ("connection", b"close")],
            Framing::Empty,
            false,
        ),
        (503, &[("connection", b"close")], Framing::UntilClose, false),
        (204, &[], Framing::Empty, true),
        (599, &[("content-length", b"1")], Framing::Length(1), true),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let mut out = BytesMut::from("before");
        head::write_head(&mut out, status, &headers, own);
        assert_eq!(&out.split_to(6)[..], b"before");
        out.extend_from_slice(b"abc");
        let mut read = head::take(&mut out).unwrap().unwrap();
        assert_eq!(&out[..], b"abc");
        assert_eq!(
            (read.status, read.framing, read.keeps),
            (status, framing, keeps)
        );
        for (name, value) in own {
            assert_eq!(read.headers.remove(*name).unwrap().as_bytes(), *value);
        }
        assert_eq!(read.headers, headers);
    }
}

#[test]
fn sizes_of_chunks_are_read_again() {
    // R-D1
    for (size, text) in [
        (0, "0\r\n"),
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (255, "ff\r\n"),
        (4096, "1000\r\n"),
        (0xabc_def0, "abcdef0\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        let mut out = BytesMut::from("before");
        write_size(&mut out, size);
        assert_eq!(out, format!("before{text}"));
        let mut reader = BodyReader::new(Framing::Chunked);
        let mut held = out.split_off(6);
        held.extend_from_slice(b"x");
        let read = reader.take(&mut held).unwrap();
        // After the last chunk come trailers, of which this is half a line.
        let expected = if size == 0 {
            Step::NeedMore
        } else {
            Step::Part(Bytes::from("x"))
        };
        assert_eq!(read, expected, "{size}");
    }
}

/// Parts as answers are written.
fn chunked(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        write_size(&mut out, part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(CRLF);
    }
    out.extend_from_slice(LAST_CHUNK);
    out.to_vec()
}

proptest! {
    #[test]
    fn chunks_are_the_same_wherever_reads_end(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        size in 1_usize..50,
        behind in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        // R-D1
        let mut bytes = chunked(&parts);
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(read(Framing::Chunked, &bytes, size), Ok((parts.concat(), true, behind.len())));
    }

    #[test]
    fn any_bytes_are_read_the_same_or_not_at_all(
        bytes in prop::collection::vec(prop::sample::select(b"01af\r\n;x: \0".to_vec()), 0..60),
        size in 1_usize..20,
    ) {
        // R-X2
        let whole = read(Framing::Chunked, &bytes, usize::MAX >> 1);
        let split = read(Framing::Chunked, &bytes, size);
        match (whole, split) {
            (Ok((body, ended, _)), Ok((other, other_ended, _))) => {
                prop_assert_eq!(body, other);
                prop_assert_eq!(ended, other_ended);
            }
            (Err(_), Err(_)) => {}
            (whole, split) => prop_assert!(false, "{:?} or {:?}", whole, split),
        }
    }

    #[test]
    fn a_head_is_taken_whole_or_waited_for(cut in 0_usize..64, behind in prop::collection::vec(any::<u8>(), 0..9)) {
        // R-D1
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-request-id: abc\r\n\r\n";
        let mut bytes = BytesMut::from(&text[..cut.min(text.len())]);
        if cut < text.len() {
            prop_assert!(head::take(&mut bytes).unwrap().is_none());
            bytes.extend_from_slice(&text[cut..]);
        }
        bytes.extend_from_slice(&behind);
        let head = head::take(&mut bytes).unwrap().unwrap();
        prop_assert_eq!(head.headers.get("x-request-id").unwrap(), "abc");
        prop_assert_eq!(bytes.freeze(), Bytes::from(behind));
    }
}
