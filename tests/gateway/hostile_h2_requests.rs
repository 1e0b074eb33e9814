//! Requests that HTTP/2 frames well and that say what they must not: a provider behind HTTP/1.1 would read something else in them.

use crate::support::Rondo;
use crate::support::auditor::{Auditor, asking, served};
use crate::support::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, bytes};
use crate::support::wire::{CHAT, End, Wire, block, request};

struct Scene {
    auditor: Auditor,
    rondo: Rondo,
    wrong: Vec<String>,
}

impl Scene {
    async fn start() -> Scene {
        let auditor = Auditor::start().await;
        let rondo = auditor.behind("client_read_timeout_ms: 200").await;
        Scene {
            auditor,
            rondo,
            wrong: Vec::new(),
        }
    }

    /// Writes frames of stream 1. Either its request is not sent, or (`is_good`) it is read in one way. The others have their own answers,
    /// on the same connection if it goes on.
    async fn check(&mut self, case: &str, frames: &[u8], is_good: bool) {
        let case: String = case.chars().take(200).collect();
        let before = self.auditor.requests();
        let mut wire = Wire::open(self.rondo.addr, &[]).await;
        wire.write(frames).await;
        let end = wire.end(1).await;
        let sent = self.auditor.requests() - before;
        let is_answered =
            matches!(&end, End::Answered { ok: true, body } if body.contains("answer to vector\""));
        let is_refused = !matches!(&end, End::Answered { ok: true, .. }) && sent == 0;
        let is_right = if is_good {
            is_answered && sent == 1
        } else {
            is_refused
        };
        if !is_right {
            self.wrong.push(format!("{case}: {end:?}, {sent} sent"));
        }
        if matches!(end, End::Answered { .. } | End::Reset(_)) {
            wire.write(&request(3, &CHAT, &asking("sibling"))).await;
            let end = wire.end(3).await;
            let is_own = matches!(&end, End::Answered { ok: true, body } if body.contains("answer to sibling\""));
            if !is_own {
                self.wrong.push(format!("{case}: sibling {end:?}"));
            }
        }
        served(self.rondo.addr, "after", &case).await;
        self.auditor.assert_clean(&case);
    }

    async fn end(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        self.rondo.assert_quiet().await;
        assert_eq!(self.auditor.upstream.connections(), 1, "a lost connection");
    }
}

/// The fields of a chat request with one of them changed.
fn with<'f>(name: &str, value: &'f str) -> Vec<(&'f str, &'f str)> {
    CHAT.map(|(known, old)| (known, if known == name { value } else { old }))
        .to_vec()
}

fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    CHAT.into_iter()
        .filter(|(known, _)| *known != name)
        .collect()
}

fn and<'f>(more: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    [&CHAT[..], more].concat()
}

// R-B5 R-X1
#[tokio::test]
async fn pseudo_fields_are_read_in_one_way() {
    let mut scene = Scene::start().await;
    let path = "/v1/chat/completions";
    for (case, fields, is_good) in [
        ("nothing", CHAT.to_vec(), true),
        (
            "a line end in the path",
            with(
                ":path",
                "/v1/chat/completions HTTP/1.1\r\nx-smuggled: 1\r\nx: ",
            ),
            false,
        ),
        (
            "a line feed in the path",
            with(":path", "/v1/chat/completions\n"),
            false,
        ),
        (
            "a space in the path",
            with(":path", "/v1/chat/completions HTTP/1.1"),
            false,
        ),
        (
            "NUL in the path",
            with(":path", "/v1/chat/completions\0"),
            false,
        ),
        (
            "a tab in the path",
            with(":path", "/v1/chat/completions\t"),
            false,
        ),
        ("no path", without(":path"), false),
        ("an empty path", with(":path", ""), false),
        (
            "a relative path",
            with(":path", "v1/chat/completions"),
            false,
        ),
        ("a star", with(":path", "*"), false),
        (
            "a whole address as path",
            with(":path", "http://evil/v1/chat/completions"),
            false,
        ),
        (
            "two slashes",
            with(":path", "//evil/v1/chat/completions"),
            false,
        ),
        ("two paths", and(&[(":path", path)]), false),
        (
            "two methods",
            [&[(":method", "POST")], &CHAT[..]].concat(),
            false,
        ),
        (
            "two schemes",
            [&[(":scheme", "http")], &CHAT[..]].concat(),
            false,
        ),
        (
            "two authorities",
            [&[(":authority", "g")], &CHAT[..]].concat(),
            false,
        ),
        (
            "a pseudo field behind a field",
            [&CHAT[4..], &CHAT[..4]].concat(),
            false,
        ),
        (
            "an unknown pseudo field",
            [&[(":evil", "x")], &CHAT[..]].concat(),
            false,
        ),
        (
            "a status",
            [&[(":status", "200")], &CHAT[..]].concat(),
            false,
        ),
        (
            "a protocol",
            [&[(":protocol", "websocket")], &CHAT[..]].concat(),
            false,
        ),
        ("no method", without(":method"), false),
        ("an empty method", with(":method", ""), false),
        (
            "a request in the method",
            with(":method", "POST / HTTP/1.1\r\nx-smuggled: 1\r\n\r\nPOST"),
            false,
        ),
        ("another method", with(":method", "post"), false),
        ("CONNECT", with(":method", "CONNECT"), false),
        (
            "CONNECT alone",
            vec![(":method", "CONNECT"), (":authority", "evil:443")],
            false,
        ),
        ("no scheme", without(":scheme"), false),
        (
            "a line end in the scheme",
            with(":scheme", "http\r\n"),
            false,
        ),
        (
            "a whole address as scheme",
            with(":scheme", "http://evil/?"),
            false,
        ),
        ("user information", with(":authority", "user@g"), false),
        (
            "a line end in the authority",
            with(":authority", "g\r\nx-smuggled: 1"),
            false,
        ),
        ("a path in the authority", with(":authority", "g/x"), false),
        ("no authority", without(":authority"), false),
        ("another host", and(&[("host", "evil")]), false),
        ("two hosts", and(&[("host", "g"), ("host", "g")]), false),
        ("the same host", and(&[("host", "g")]), true),
    ] {
        scene
            .check(case, &request(1, &fields, &asking("vector")), is_good)
            .await;
    }
    scene.end().await;
}

// R-B5 R-X1
#[tokio::test]
async fn fields_of_a_connection_are_not_read() {
    let mut scene = Scene::start().await;
    for (name, value, is_good) in [
        ("te", "trailers", true),
        ("te", "chunked", false),
        ("connection", "keep-alive", false),
        ("transfer-encoding", "chunked", false),
        ("upgrade", "h2c", false),
        ("keep-alive", "timeout=5", false),
        ("proxy-connection", "keep-alive", false),
        ("X-Smuggled", "1", false),
        ("x smuggled", "1", false),
        ("x:smuggled", "1", false),
        ("x\r\nx-smuggled", "1", false),
        ("x\0", "1", false),
        ("", "1", false),
        ("x", "1\r\nx-smuggled: 1", false),
        ("x", "1\nx-smuggled: 1", false),
        ("x", "1\r", false),
        ("x", "1\0", false),
        ("x", " 1 ", true),
        ("expect", "100-continue", true),
    ] {
        let fields = and(&[(name, value)]);
        scene
            .check(
                &format!("{name:?}: {value:?}"),
                &request(1, &fields, &asking("vector")),
                is_good,
            )
            .await;
    }
    scene.end().await;
}

// R-B5 R-X1: frames say where a body ends, and a length that says otherwise is a lie.
#[tokio::test]
async fn a_length_does_not_lie() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let length = body.len();
    for (value, is_good) in [
        (format!("{length}"), true),
        (format!("{}", length - 1), false),
        (format!("{}", length + 1), false),
        ("0".to_owned(), false),
        (format!("+{length}"), false),
        (format!("-{length}"), false),
        (format!("{length}, {length}"), false),
        (format!("{length}, 0"), false),
        ("18446744073709551616".to_owned(), false),
        (String::new(), false),
        (format!("0x{length:x}"), false),
    ] {
        let fields = and(&[("content-length", &value)]);
        scene
            .check(&value, &request(1, &fields, &body), is_good)
            .await;
    }
    let value = length.to_string();
    let fields = and(&[("content-length", &value), ("content-length", "0")]);
    scene
        .check("two lengths", &request(1, &fields, &body), false)
        .await;
    scene.end().await;
}

// R-B4 R-B5 R-X2: fields behind the body are no fields of the request, and Pingora 0.9.1 would ask for more of the body without end.
#[tokio::test]
async fn trailers_are_not_taken() {
    let mut scene = Scene::start().await;
    for (name, value) in [
        ("x-smuggled", "1"),
        ("content-length", "5"),
        ("authorization", "Bearer stolen"),
        (":path", "/v1/models"),
        ("transfer-encoding", "chunked"),
    ] {
        let mut frames = bytes(HEADERS, END_HEADERS, 1, &block(&CHAT));
        frames.extend(bytes(DATA, 0, 1, asking("vector").as_bytes()));
        let trailers = block(&[(name, value)]);
        frames.extend(bytes(HEADERS, END_HEADERS | END_STREAM, 1, &trailers));
        scene.check(name, &frames, false).await;
    }
    scene.end().await;
}
