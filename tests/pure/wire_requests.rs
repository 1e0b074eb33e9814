//! Heads of requests as bytes: one request, wherever the reads end, or a refusal that says why. R-X and R-B ids name what a wrong reading
//! would break.

use bytes::BytesMut;
use http::header::{HeaderName, HeaderValue};
use proptest::prelude::*;
use rondo::core::limits::HEAD_BYTES_MAX;
use rondo::fuzzing;
use rondo::wire::body::Framing;
use rondo::wire::request::{HEADERS_MAX, Head, NoHead, take, write_head};
use rondo::wire::{HeadSearch, Malformed};

fn taken(text: &str) -> Result<Option<Head>, NoHead> {
    take(&mut BytesMut::from(text))
}

/// The head of a request line and headers.
fn head(line: &str, headers: &str) -> Result<Head, NoHead> {
    taken(&format!("{line}\r\n{headers}\r\n")).map(|head| head.expect("a whole head"))
}

fn headed(headers: &str) -> Result<Head, NoHead> {
    head("POST /x HTTP/1.1", &format!("host: h\r\n{headers}"))
}

/// What a connection makes of bytes that come one by one: it looks when [`HeadSearch`] says so.
fn dripped(bytes: &[u8]) -> Result<Option<(Head, usize)>, NoHead> {
    let (mut held, mut search) = (BytesMut::new(), HeadSearch::default());
    for (at, byte) in bytes.iter().enumerate() {
        held.extend_from_slice(&[*byte]);
        if search.is_due(&held)
            && let Some(head) = take(&mut held)?
        {
            assert!(held.is_empty(), "more was there than the head");
            return Ok(Some((head, at + 1)));
        }
    }
    Ok(None)
}

#[test]
fn a_head_that_drips_in_is_looked_for_at_its_lines_ends_alone() {
    // R-X1: a byte at a time costs no parse each, and one beyond the bound is not waited for.
    let head = format!(
        "POST /x HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n",
        "y".repeat(10_000)
    );
    let mut search = HeadSearch::default();
    let looks = (1..=head.len()).filter(|come| search.is_due(&head.as_bytes()[..*come]));
    assert_eq!(looks.collect::<Vec<_>>(), [1, head.len()]);
    let endless = vec![b'y'; HEAD_BYTES_MAX + 1];
    assert!(!search.is_due(&endless[..HEAD_BYTES_MAX]));
    assert!(search.is_due(&endless));
}

#[test]
fn a_request_line_is_read_as_it_stands() {
    // R-X1
    for (line, method, target) in [
        ("GET / HTTP/1.1", "GET", "/"),
        ("get /x HTTP/1.1", "get", "/x"),
        ("DELETE /a/b?c=d&e=%20 HTTP/1.1", "DELETE", "/a/b?c=d&e=%20"),
        ("OPTIONS * HTTP/1.1", "OPTIONS", "*"),
        ("A!#$%&'*+-.^_`|~ / HTTP/1.1", "A!#$%&'*+-.^_`|~", "/"),
        ("GET http://h/p?q HTTP/1.1", "GET", "http://h/p?q"),
        ("CONNECT h HTTP/1.1", "CONNECT", "h"),
        ("GET /? HTTP/1.1", "GET", "/?"),
        ("GET //h/p HTTP/1.1", "GET", "//h/p"),
    ] {
        let head = head(line, "host: h\r\n").unwrap_or_else(|why| panic!("{line}: {why:?}"));
        assert_eq!(head.parts.method.as_str(), method, "{line}");
        assert_eq!(head.parts.uri.to_string(), target, "{line}");
        assert_eq!(head.parts.version, http::Version::HTTP_11, "{line}");
    }
    for line in [
        "GET /",
        "GET",
        "",
        "GET  / HTTP/1.1",
        "GET / x HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /\tHTTP/1.1",
        " GET / HTTP/1.1",
        "GET\0 / HTTP/1.1",
        "G(T / HTTP/1.1",
        "GÉT / HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET x HTTP/1.1\r\nhost: other",
        "GET / HTTP/0.9",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / http/1.1",
        "GET / HTTP/1.1\r",
    ] {
        let read = head(line, "host: h\r\n");
        assert!(
            matches!(read, Err(NoHead::Malformed(_))),
            "{line:?}: {read:?}"
        );
    }
    let old = head("GET / HTTP/1.0", "").unwrap();
    assert_eq!(old.parts.version, http::Version::HTTP_10);
}

#[test]
fn a_target_and_a_host_name_one_host() {
    // R-X1
    let good = [
        ("GET / HTTP/1.1", "host: h\r\n"),
        ("GET / HTTP/1.1", "Host:h:8080\r\n"),
        ("GET / HTTP/1.1", "host: [::1]:80\r\n"),
        ("GET / HTTP/1.1", "host: \r\n"),
        ("GET http://h:80/ HTTP/1.1", "host: H:80\r\n"),
        ("GET http://h/ HTTP/1.1", ""),
        ("GET / HTTP/1.0", ""),
    ];
    for (line, headers) in good {
        assert!(head(line, headers).is_ok(), "{line} {headers:?}");
    }
    let bad = [
        ("GET / HTTP/1.1", "", "no host"),
        ("GET / HTTP/1.1", "host: h\r\nhost: h\r\n", "two hosts"),
        ("GET / HTTP/1.1", "host: h\r\nHOST: evil\r\n", "two hosts"),
        ("GET / HTTP/1.0", "host: h\r\nhost: h\r\n", "two hosts"),
        ("GET / HTTP/1.1", "host: u@h\r\n", "a host that is none"),
        ("GET / HTTP/1.1", "host: h/p\r\n", "a host that is none"),
        ("GET / HTTP/1.1", "host: h, evil\r\n", "a host that is none"),
        ("GET / HTTP/1.1", "host: h evil\r\n", "a host that is none"),
        (
            "GET http://u@h/ HTTP/1.1",
            "host: h\r\n",
            "a user in the target",
        ),
        ("GET http://u:p@h/ HTTP/1.1", "", "a user in the target"),
        (
            "GET http://evil/ HTTP/1.1",
            "host: h\r\n",
            "a target and a host that differ",
        ),
        (
            "GET http://h:80/ HTTP/1.1",
            "host: h\r\n",
            "a target and a host that differ",
        ),
        (
            "GET http://h/ HTTP/1.1",
            "host: \r\n",
            "a target and a host that differ",
        ),
        (
            "CONNECT evil:443 HTTP/1.1",
            "host: h\r\n",
            "a target and a host that differ",
        ),
    ];
    for (line, headers, why) in bad {
        let read = head(line, headers).map(|head| head.parts.uri);
        assert_eq!(
            read,
            Err(NoHead::Malformed(Malformed(why))),
            "{line} {headers:?}"
        );
    }
}

#[test]
fn a_request_says_where_its_body_ends() {
    // R-X1
    for (headers, framing) in [
        ("", Framing::Empty),
        ("content-length: 0\r\n", Framing::Empty),
        ("content-length: 5\r\n", Framing::Length(5)),
        ("content-length: 005\r\n", Framing::Length(5)),
        (
            "content-length: 5\r\ncontent-length: 5\r\n",
            Framing::Length(5),
        ),
        (
            "content-length: 18446744073709551615\r\n",
            Framing::Length(u64::MAX),
        ),
        ("transfer-encoding: chunked\r\n", Framing::Chunked),
        ("Transfer-Encoding: CHUNKED \r\n", Framing::Chunked),
    ] {
        assert_eq!(headed(headers).unwrap().framing, framing, "{headers:?}");
    }
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 0\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: 5, 5\r\n",
        "content-length: +5\r\n",
        "content-length: 5 5\r\n",
        "content-length: 0x5\r\n",
        "content-length: \r\n",
        "content-length: 18446744073709551616\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: \r\n",
        "content-length : 5\r\n",
        "a: b\r\n content-length: 5\r\n",
        "a\0: b\r\n",
        "a: b\0\r\n",
        "a: b\rc\r\n",
        ": b\r\n",
        "a\r\n",
    ] {
        assert!(
            matches!(headed(headers), Err(NoHead::Malformed(_))),
            "{headers:?}"
        );
    }
    // Chunks came with HTTP/1.1.
    let old = head("POST /x HTTP/1.0", "transfer-encoding: chunked\r\n");
    assert!(matches!(old, Err(NoHead::Malformed(_))), "{old:?}");
    let old = head("POST /x HTTP/1.0", "content-length: 3\r\n").unwrap();
    assert_eq!(old.framing, Framing::Length(3));
}

#[test]
fn a_client_keeps_its_connection_as_its_version_says() {
    for (version, headers, keeps) in [
        ("1.1", "", true),
        ("1.1", "connection: keep-alive\r\n", true),
        ("1.1", "connection: x, Close\r\n", false),
        (
            "1.1",
            "connection: keep-alive\r\nconnection: close\r\n",
            false,
        ),
        ("1.1", "connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "connection: Keep-Alive\r\n", true),
        ("1.0", "connection: keep-alive, close\r\n", false),
    ] {
        let line = format!("GET / HTTP/{version}");
        let head = head(&line, &format!("host: h\r\n{headers}")).unwrap();
        assert_eq!(head.keeps, keeps, "{version} {headers:?}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    // R-D3
    for (text, says) in [
        ("GET / HTTP/3.0\r\n\r\n", "version"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n", "name"),
        ("GET / HTTP/1.1\r\na: \0\r\n\r\n", "value"),
        ("GET / HTTP/1.1\rx\r\n\r\n", "line"),
        ("\x16\x03\x01\x02\0\x01\0", "request line"),
        ("GET / HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n", "two hosts"),
    ] {
        match taken(text) {
            Err(NoHead::Malformed(Malformed(why))) => assert!(why.contains(says), "{why}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn empty_lines_before_a_head_are_passed_over() {
    // R-X1
    for before in ["\r\n", "\n", "\r\n\r\n\r\n"] {
        let text = format!("{before}GET /x HTTP/1.1\r\nhost: h\r\n\r\n");
        let (head, _) = dripped(text.as_bytes()).unwrap().unwrap();
        assert_eq!(head.parts.uri, "/x");
        assert_eq!(head.parts.headers["host"], "h");
        assert_eq!(taken(&text).unwrap().unwrap().parts.uri, "/x");
    }
}

#[test]
fn a_head_of_the_bound_is_taken_and_one_byte_more_is_not() {
    // R-B7
    let start = "POST /x HTTP/1.1\r\nhost: h\r\na: ";
    let of = |length: usize| {
        let value = "x".repeat(length - start.len() - 4);
        format!("{start}{value}\r\n\r\n")
    };
    for (length, fits) in [
        (HEAD_BYTES_MAX - 1, true),
        (HEAD_BYTES_MAX, true),
        (HEAD_BYTES_MAX + 1, false),
        (HEAD_BYTES_MAX + 2, false),
    ] {
        let text = of(length);
        assert_eq!(text.len(), length);
        let whole = taken(&text).map(|head| head.is_some());
        let expected = if fits {
            Ok(true)
        } else {
            Err(NoHead::TooLarge)
        };
        assert_eq!(whole, expected, "{length} at once");
        let pieces = dripped(text.as_bytes()).map(|head| head.is_some());
        assert_eq!(pieces, expected, "{length} byte by byte");
        // What stands behind a head does not count.
        let more = taken(&(text + &"y".repeat(HEAD_BYTES_MAX))).map(|head| head.is_some());
        assert_eq!(more, expected, "{length} with a body");
    }
    let open = |length: usize| taken(&format!("{start}{}", "x".repeat(length - start.len())));
    assert!(open(HEAD_BYTES_MAX).unwrap().is_none());
    assert_eq!(open(HEAD_BYTES_MAX + 1).err(), Some(NoHead::TooLarge));
}

#[test]
fn so_many_headers_are_taken_and_one_more_is_not() {
    // R-B7
    let of = |count: usize| headed(&"a: b\r\n".repeat(count - 1)).map(|head| head.parts.headers);
    assert_eq!(of(HEADERS_MAX).unwrap().len(), HEADERS_MAX);
    assert_eq!(of(HEADERS_MAX + 1), Err(NoHead::TooLarge));
}

#[test]
fn line_feeds_alone_end_lines_and_heads() {
    // R-X1: read in one way, wherever the reads end.
    for text in [
        "GET /x HTTP/1.1\nhost: h\n\n",
        "GET /x HTTP/1.1\r\nhost: h\n\r\n",
        "GET /x HTTP/1.1\nhost: h\r\n\n",
        "GET /x HTTP/1.0\n\n",
    ] {
        let whole = taken(text).unwrap().unwrap();
        let (pieces, length) = dripped(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len(), "{text:?}");
        assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
    }
}

/// Lines as clients write them, good and bad.
fn line() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "host: h",
        "content-length: 3",
        "transfer-encoding: chunked",
        "connection: close",
        "connection: keep-alive",
        "x-request-id: abc",
        "accept:",
        "x:  spaced\t ",
        "a: \r",
        "bad header",
        " folded",
        "x: caf\u{e9}",
    ])
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let end = || prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n"]);
    let first = prop::sample::select(vec![
        "GET / HTTP/1.1",
        "POST /x?y HTTP/1.1",
        "GET http://h/ HTTP/1.0",
        "POST /x HTTP/1.2",
    ]);
    let before = prop::sample::select(vec!["", "", "\r\n", "\n"]);
    let lines = prop::collection::vec((line(), end()), 0..6);
    (before, first, end(), lines, end()).prop_map(|(before, first, end, lines, last)| {
        let mut text = format!("{before}{first}{end}");
        for (line, end) in lines {
            text.push_str(line);
            text.push_str(end);
        }
        text.push_str(last);
        text.into_bytes()
    })
}

proptest! {
    #[test]
    fn the_end_of_a_head_is_never_missed(bytes in any_head(), behind in "[a\r\n]{0,4}") {
        // R-X1: from every place that was looked up to before, however much comes with the end.
        let mut held = BytesMut::from(&bytes[..]);
        if let Ok(Some(_)) = take(&mut held) {
            let whole = bytes.len() - held.len();
            for searched in 0..whole {
                for come in [whole, whole + behind.len()] {
                    let seen = [&bytes[..whole], behind.as_bytes()].concat();
                    let mut search = HeadSearch::default();
                    search.is_due(&seen[..searched]);
                    prop_assert!(search.is_due(&seen[..come]), "{} of {}", searched, whole);
                }
            }
        }
    }

    #[test]
    fn a_head_is_one_request_wherever_reads_end(bytes in any_head(), size in any::<u8>(), cut in any::<prop::sample::Index>()) {
        // R-X1
        fuzzing::wire::request_head(&[&[size], &bytes[..]].concat());
        let mut parts = BytesMut::from(&bytes[..cut.index(bytes.len())]);
        let had = parts.len();
        if let Ok(None) = take(&mut parts) {
            prop_assert_eq!(&parts[..], &bytes[..had], "a head that is not whole was touched");
        }
    }

    #[test]
    fn what_is_written_is_read_again(
        path in "/[a-z0-9/?=&%._~-]{0,20}",
        values in prop::collection::vec("[ -~]{0,12}", 0..6),
    ) {
        // R-X1
        let headers: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(at, value)| (HeaderName::try_from(format!("x-{at}")).unwrap(), HeaderValue::from_str(value.trim()).unwrap()))
            .collect();
        let mut out = BytesMut::new();
        write_head(&mut out, "POST", &path, "h:80", &headers).unwrap();
        let head = take(&mut out).unwrap().unwrap();
        prop_assert!(out.is_empty());
        prop_assert_eq!(head.parts.uri.path_and_query().unwrap().as_str(), &path);
        prop_assert_eq!(&head.parts.headers["host"], "h:80");
        prop_assert_eq!(head.parts.headers.len(), 1 + headers.len());
        for (name, value) in &headers {
            prop_assert_eq!(head.parts.headers.get(name), Some(value));
        }
    }
}
