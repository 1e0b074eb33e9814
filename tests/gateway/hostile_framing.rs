//! Requests whose end, target or fields two readers may see differently. Each is refused or read in one way, and whatever it was, a
//! provider gets whole requests of the gateway's own, and the next client its own answer.

use crate::support::Rondo;
use crate::support::auditor::{Auditor, asking, served};
use crate::support::raw::{RawClient, post_text};

/// A short limit, so that a request which lacks its end is over soon.
const SERVER: &str =
    "max_request_body: 64KiB, client_read_timeout_ms: 200, keepalive_timeout_ms: 1000";
const PATH: &str = "/v1/chat/completions";

/// What must become of a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    /// One 4xx or nothing, and the end of the connection; nothing is sent.
    Refused,
    /// Read in one way: one request with the body as it was meant, one answer.
    Once,
}

pub struct Scene {
    auditor: Auditor,
    pub rondo: Rondo,
    asked: usize,
    wrong: Vec<String>,
}

impl Scene {
    pub async fn start() -> Scene {
        let auditor = Auditor::start().await;
        let rondo = auditor.behind(SERVER).await;
        served(rondo.addr, "warm", "the first").await;
        Scene {
            auditor,
            rondo,
            asked: 1,
            wrong: Vec::new(),
        }
    }

    /// Writes a vector, and looks at what follows from it.
    pub async fn check(&mut self, case: &str, bytes: &[u8], fate: Fate) {
        let case: String = case.chars().take(200).collect();
        let before = self.auditor.requests();
        let mut client = RawClient::connect(self.rondo.addr).await;
        client.bytes(bytes).await;
        let seen = match fate {
            Fate::Refused => client.rest().await.0,
            Fate::Once => client.first_answer().await,
        };
        let sent = self.auditor.requests() - before;
        let status = seen.split(' ').nth(1).unwrap_or("");
        let is_right = match fate {
            Fate::Refused => {
                let is_refused = seen.is_empty() || status.starts_with('4');
                is_refused && sent == 0 && seen.matches("HTTP/1.").count() <= 1
            }
            Fate::Once => {
                let body = self.auditor.last_body();
                let is_whole = sent == 1 && body == Some(asking("vector"));
                is_whole && status == "200" && seen.contains("answer to vector\"")
            }
        };
        if !is_right {
            self.wrong
                .push(format!("{case:?}: {fate:?}, {sent} sent, {seen:?}"));
        }
        if fate == Fate::Once {
            self.next(&mut client, &case).await;
        }
        drop(client);
        self.asked += 1;
        served(self.rondo.addr, &format!("after-{}", self.asked), &case).await;
        self.auditor.assert_clean(&case);
    }

    /// The next request on the client's connection has its own answer too, if the connection goes on.
    async fn next(&mut self, client: &mut RawClient, case: &str) {
        client.skip_answer();
        let text = post_text(PATH, "", &asking("next"));
        client.bytes(text.as_bytes()).await;
        let seen = client.first_answer().await;
        if !seen.is_empty() && !seen.contains("answer to next\"") {
            self.wrong.push(format!("{case:?}: next is {seen:?}"));
        }
    }

    /// Writes a request that is not sent anywhere, with another in or behind its body. That one is not served.
    pub async fn behind(&mut self, case: &str, bytes: &[u8]) {
        let before = self.auditor.requests();
        let mut client = RawClient::connect(self.rondo.addr).await;
        client.bytes(bytes).await;
        let first = client.first_answer().await;
        client.skip_answer();
        let next = post_text(PATH, "connection: close\r\n", &asking("next"));
        client.bytes(next.as_bytes()).await;
        let seen = client.rest().await.0;
        let sent = self.auditor.requests() - before;
        let is_next = seen.is_empty() || seen.contains("answer to next\"") && sent == 1;
        if !is_next || first.contains("answer") || seen.matches("HTTP/1.1 ").count() > 1 {
            self.wrong
                .push(format!("{case:?}: {sent} sent, {first:?}, then {seen:?}"));
        }
        served(self.rondo.addr, "after", case).await;
        self.auditor.assert_clean(case);
    }

    pub async fn end(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        self.rondo.assert_quiet().await;
        let opened = self.auditor.upstream.connections();
        assert_eq!(opened, 1, "a poisoned or lost upstream connection");
    }
}

/// A request with these header lines, as they are.
fn with(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// The body in one chunk.
fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// What would be smuggled.
pub fn hidden() -> String {
    let body = asking("smuggled");
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: evil\r\nx-smuggled: 1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

// R-B5 R-X1
#[tokio::test]
async fn a_length_is_one_number_or_none() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let n = body.len();
    for (headers, fate) in [
        (
            format!("content-length: {n}\r\ncontent-length: {n}\r\n"),
            Fate::Once,
        ),
        (format!("content-length: {n}, {n}\r\n"), Fate::Refused),
        (
            format!("content-length: {n}\r\ncontent-length: 0\r\n"),
            Fate::Refused,
        ),
        (
            format!("content-length: 0\r\ncontent-length: {n}\r\n"),
            Fate::Refused,
        ),
        (format!("content-length: {n}, 0\r\n"), Fate::Refused),
        (format!("content-length: {n},\r\n"), Fate::Refused),
        (format!("content-length: +{n}\r\n"), Fate::Refused),
        (format!("content-length: -{n}\r\n"), Fate::Refused),
        (format!("content-length: {n} {n}\r\n"), Fate::Refused),
        (format!("content-length: 0x{n:x}\r\n"), Fate::Refused),
        (format!("content-length: {n}.0\r\n"), Fate::Refused),
        (format!("content-length: {n}_0\r\n"), Fate::Refused),
        (format!("content-length: {n};\r\n"), Fate::Refused),
        (format!("content-length: \"{n}\"\r\n"), Fate::Refused),
        (
            "content-length: 18446744073709551616\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "content-length: 18446744073709551615\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "content-length: 9223372036854775808\r\n".to_owned(),
            Fate::Refused,
        ),
        ("content-length: \r\n".to_owned(), Fate::Refused),
        (format!("content-length:\r\n {n}\r\n"), Fate::Refused),
        (format!("content-length : {n}\r\n"), Fate::Refused),
        (format!(" content-length: {n}\r\n"), Fate::Refused),
        (format!("content-length\t: {n}\r\n"), Fate::Refused),
        (format!("content-length: {n}\0\r\n"), Fate::Refused),
        (format!("content\0-length: {n}\r\n"), Fate::Refused),
        (format!("content-length:\t {n} \t\r\n"), Fate::Once),
        (format!("Content-LENGTH: 00{n}\r\n"), Fate::Once),
    ] {
        scene.check(&headers, &with(&headers, &body), fate).await;
    }
    scene.end().await;
}

// R-B5 R-X1
#[tokio::test]
async fn an_encoding_is_chunked_or_nothing() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let (n, chunks) = (body.len(), chunked(&body));
    for (headers, fate) in [
        ("transfer-encoding: chunked\r\n".to_owned(), Fate::Once),
        ("Transfer-Encoding: CHUNKED\r\n".to_owned(), Fate::Once),
        ("transfer-encoding: \tchunked \t\r\n".to_owned(), Fate::Once),
        (
            format!("content-length: {n}\r\ntransfer-encoding: chunked\r\n"),
            Fate::Refused,
        ),
        (
            format!("transfer-encoding: chunked\r\ncontent-length: {n}\r\n"),
            Fate::Refused,
        ),
        (
            format!(
                "Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
                chunks.len()
            ),
            Fate::Refused,
        ),
        (
            format!("content-length: {n}\r\ntransfer-encoding: identity\r\n"),
            Fate::Refused,
        ),
        (
            "transfer-encoding: chunked, identity\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: identity, chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: gzip, chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: chunked, chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: x\r\n".to_owned(),
            Fate::Refused,
        ),
        ("transfer-encoding: xchunked\r\n".to_owned(), Fate::Refused),
        ("transfer-encoding: chunkedx\r\n".to_owned(), Fate::Refused),
        (
            "transfer-encoding: \"chunked\"\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding: chunked;q=1\r\n".to_owned(),
            Fate::Refused,
        ),
        ("transfer-encoding: chunked,\r\n".to_owned(), Fate::Refused),
        ("transfer-encoding: ,chunked\r\n".to_owned(), Fate::Refused),
        (
            "transfer-encoding: \x0bchunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "transfer-encoding:\r\n chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "x: y\r\n transfer-encoding: chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        ("transfer-encoding : chunked\r\n".to_owned(), Fate::Refused),
        (
            "transfer-encoding\r\n: chunked\r\n".to_owned(),
            Fate::Refused,
        ),
        ("transfer\0-encoding: chunked\r\n".to_owned(), Fate::Refused),
        (
            format!("transfer_encoding: chunked\r\ncontent-length: {n}\r\nx: "),
            Fate::Refused,
        ),
        ("transfer-encoding: \r\n".to_owned(), Fate::Refused),
    ] {
        scene.check(&headers, &with(&headers, &chunks), fate).await;
    }
    scene.end().await;
}

// R-B5 R-X1
#[tokio::test]
async fn chunks_are_read_in_one_way() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let n = body.len();
    let whole = |size: String| format!("{size}\r\n{body}\r\n0\r\n\r\n");
    let half = n / 2;
    let (head, tail) = body.split_at(half);
    for (case, chunks, fate) in [
        (
            "two chunks",
            format!(
                "{half:x}\r\n{head}\r\n{:X}\r\n{tail}\r\n0\r\n\r\n",
                n - half
            ),
            Fate::Once,
        ),
        (
            "an extension",
            whole(format!("{n:x};name=\"value\"")),
            Fate::Once,
        ),
        ("leading zeros", whole(format!("000{n:x}")), Fate::Once),
        (
            "a hidden request in an extension",
            whole(format!("{n:x};{}", hidden().replace("\r\n", " "))),
            Fate::Once,
        ),
        ("0x", whole(format!("0x{n:x}")), Fate::Refused),
        ("negative", whole(format!("-{n:x}")), Fate::Refused),
        ("signed", whole(format!("+{n:x}")), Fate::Refused),
        (
            "underscore",
            whole(format!("{:x}_{:x}", n / 16, n % 16)),
            Fate::Refused,
        ),
        ("empty", whole(String::new()), Fate::Refused),
        ("no number", whole("xyz".to_owned()), Fate::Refused),
        ("a space before", whole(format!(" {n:x}")), Fate::Refused),
        ("two numbers", whole(format!("{n:x} {n:x}")), Fate::Refused),
        (
            "overflow to the size",
            whole(format!("1{n:016x}")),
            Fate::Refused,
        ),
        (
            "the largest",
            whole("ffffffffffffffff".to_owned()),
            Fate::Refused,
        ),
        (
            "too long",
            whole(format!("{}{n:x}", "0".repeat(70_000))),
            Fate::Refused,
        ),
        (
            "an endless extension",
            whole(format!("{n:x};{}", "x".repeat(70_000))),
            Fate::Refused,
        ),
        (
            "no line end after a chunk",
            format!("{n:x}\r\n{body}0\r\n\r\n"),
            Fate::Refused,
        ),
        (
            "more than a chunk",
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", n - 1),
            Fate::Refused,
        ),
        (
            "a bare line feed after the size",
            format!("{n:x}\n{body}\r\n0\r\n\r\n"),
            Fate::Refused,
        ),
        (
            "a bare carriage return after the size",
            format!("{n:x}\r{body}\r\n0\r\n\r\n"),
            Fate::Refused,
        ),
        (
            "a bare line feed after the chunk",
            format!("{n:x}\r\n{body}\n0\r\n\r\n"),
            Fate::Refused,
        ),
        (
            "a bare line feed at the end",
            format!("{n:x}\r\n{body}\r\n0\n\n"),
            Fate::Refused,
        ),
        (
            "a bare line feed in an extension",
            format!("{n:x};a\nb\r\n{body}\r\n0\r\n\r\n"),
            Fate::Refused,
        ),
        ("no end", format!("{n:x}\r\n{body}\r\n"), Fate::Refused),
        (
            "no last line",
            format!("{n:x}\r\n{body}\r\n0\r\n"),
            Fate::Refused,
        ),
    ] {
        let bytes = with("transfer-encoding: chunked\r\n", &chunks);
        scene.check(case, &bytes, fate).await;
    }
    scene.end().await;
}
