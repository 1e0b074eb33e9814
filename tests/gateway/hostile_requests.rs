//! Heads that two readers may see differently: line ends, control bytes, names, targets, hosts, versions, methods, changes of protocol.

use crate::hostile_framing::{Fate, Scene, hidden};
use crate::support::auditor::asking;

const PATH: &str = "/v1/chat/completions";

/// A request with this beginning, up to and with the last header line.
fn begun(head: &str) -> Vec<u8> {
    let body = asking("vector");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

// R-B5 R-X1
#[tokio::test]
async fn lines_and_names_are_read_in_one_way() {
    let mut scene = Scene::start().await;
    let start = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\n");
    for (case, line, fate) in [
        ("nothing", "", Fate::Once),
        (
            "a carriage return in a value",
            "x: a\rcontent-length: 5\r\n",
            Fate::Refused,
        ),
        (
            "a carriage return at a value's end",
            "x: a\r\r\n",
            Fate::Refused,
        ),
        ("NUL in a value", "x: a\0b\r\n", Fate::Refused),
        ("a control byte in a value", "x: a\x01b\r\n", Fate::Refused),
        ("DEL in a value", "x: a\x7fb\r\n", Fate::Refused),
        ("a folded line", "x: a\r\n b\r\n", Fate::Refused),
        ("a line folded by a tab", "x: a\r\n\tb\r\n", Fate::Refused),
        ("a space before the colon", "x : a\r\n", Fate::Refused),
        ("a tab before the colon", "x\t: a\r\n", Fate::Refused),
        ("no name", ": a\r\n", Fate::Refused),
        ("no colon", "x\r\n", Fate::Refused),
        ("a space in a name", "x y: a\r\n", Fate::Refused),
        ("a parenthesis in a name", "x(y): a\r\n", Fate::Refused),
        ("a slash in a name", "x/y: a\r\n", Fate::Refused),
        (
            "a letter beyond ASCII in a name",
            "x\u{e4}: a\r\n",
            Fate::Refused,
        ),
        ("an empty line end in a name", "x\r: a\r\n", Fate::Refused),
    ] {
        let bytes = begun(&format!("{start}{line}"));
        scene.check(case, &bytes, fate).await;
    }
    // Every line ends in a line feed alone: read in one way, by the length.
    let bytes = String::from_utf8(begun(&start))
        .unwrap()
        .replace("\r\n", "\n");
    scene
        .check("bare line feeds", bytes.as_bytes(), Fate::Once)
        .await;
    scene.end().await;
}

// R-B5 R-X1
#[tokio::test]
async fn targets_and_hosts_are_read_in_one_way() {
    let mut scene = Scene::start().await;
    for (head, fate) in [
        (
            format!("POST http://g{PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Once,
        ),
        (
            format!("POST http://evil{PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST http://g@evil{PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST http:/g{PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST //evil{PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/1.1\r\nhost: g\r\nhost: evil\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/1.1\r\nhost: g\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/1.1\r\nhost: g@evil\r\n"),
            Fate::Refused,
        ),
        (format!("POST {PATH} HTTP/1.1\r\nx: y\r\n"), Fate::Refused),
        (
            format!("POST {PATH} HTTP/1.1\r\nhost: g:80\r\n"),
            Fate::Once,
        ),
        (
            format!("POST {PATH}#fragment HTTP/1.1\r\nhost: g\r\n"),
            Fate::Once,
        ),
        (
            format!("POST {PATH}/../../x HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH}%0d%0a HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH}\t HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH}\0 HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} x HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST  {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/1.1 \r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!(" POST {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("\r\nPOST {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Once,
        ),
        ("POST * HTTP/1.1\r\nhost: g\r\n".to_owned(), Fate::Refused),
        (
            "POST evil:80 HTTP/1.1\r\nhost: g\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            "CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n".to_owned(),
            Fate::Refused,
        ),
        (
            format!("CONNECT {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("post {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("P\u{d6}ST {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("PO\0ST {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("PO(ST {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("{} {PATH} HTTP/1.1\r\nhost: g\r\n", "X".repeat(9_000)),
            Fate::Refused,
        ),
        (
            format!("TRACE {PATH} HTTP/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
    ] {
        scene.check(&head, &begun(&head), fate).await;
    }
    scene.end().await;
}

// R-B5 R-X1
#[tokio::test]
async fn versions_and_changes_of_protocol_hide_nothing() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (head, fate) in [
        (format!("POST {PATH} HTTP/1.0\r\nhost: g\r\n"), Fate::Once),
        (
            format!("POST {PATH} HTTP/0.9\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/1.2\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!("POST {PATH} HTTP/2.0\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (format!("POST {PATH} HTTP/11\r\nhost: g\r\n"), Fate::Refused),
        (
            format!("POST {PATH} http/1.1\r\nhost: g\r\n"),
            Fate::Refused,
        ),
        (
            format!(
                "POST {PATH} HTTP/1.1\r\nhost: g\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\nconnection: upgrade, http2-settings\r\n"
            ),
            Fate::Once,
        ),
        (
            format!(
                "POST {PATH} HTTP/1.1\r\nhost: g\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            ),
            Fate::Once,
        ),
        (
            format!("POST {PATH} HTTP/1.1\r\nhost: g\r\nconnection: content-length, host\r\n"),
            Fate::Once,
        ),
        (
            format!(
                "POST {PATH} HTTP/1.1\r\nhost: g\r\nte: trailers, chunked\r\nkeep-alive: 5\r\nproxy-connection: x\r\n"
            ),
            Fate::Once,
        ),
    ] {
        scene.check(&head, &begun(&head), fate).await;
    }
    scene
        .check(
            "HTTP/0.9",
            format!("GET {PATH}\r\n\r\n").as_bytes(),
            Fate::Refused,
        )
        .await;
    scene.check("a word", b"hello\r\n\r\n", Fate::Refused).await;
    scene
        .check("TLS", &[0x16, 3, 1, 0, 4, 1, 0, 0, 0], Fate::Refused)
        .await;
    let old =
        format!("POST {PATH} HTTP/1.0\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    scene
        .check("chunks in HTTP/1.0", old.as_bytes(), Fate::Refused)
        .await;
    scene.end().await;
}

// R-B5 R-X1 R-X2: fields that come after the body are no fields of the request.
#[tokio::test]
async fn trailers_change_nothing() {
    let mut scene = Scene::start().await;
    let body = asking("vector");
    let size = format!("{:x}", body.len());
    let start = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\ntrailer: x-smuggled\r\n\r\n{size}\r\n{body}\r\n0\r\n"
    );
    for trailer in [
        "x-smuggled: 1\r\n",
        "content-length: 5\r\n",
        "transfer-encoding: chunked\r\n",
        "host: evil\r\n",
        "authorization: Bearer stolen\r\n",
    ] {
        let bytes = format!("{start}{trailer}\r\n");
        scene.check(trailer, bytes.as_bytes(), Fate::Once).await;
    }
    scene.end().await;
}

// R-B5: what follows a request is never a second one in the same breath; a body that nobody reads is never a request.
#[tokio::test]
async fn a_request_behind_another_is_not_served() {
    let mut scene = Scene::start().await;
    let hidden = hidden();
    let length = hidden.len();
    for (case, head) in [
        (
            "unread body of a list",
            "GET /v1/models HTTP/1.1\r\nhost: g\r\n",
        ),
        (
            "unread body of nothing",
            "POST /v1/nowhere HTTP/1.1\r\nhost: g\r\n",
        ),
        (
            "unread body of a wrong method",
            "GET /v1/chat/completions HTTP/1.1\r\nhost: g\r\n",
        ),
        (
            "unread body of HEAD",
            "HEAD /v1/models HTTP/1.1\r\nhost: g\r\n",
        ),
        (
            "unread body of a handshake",
            "GET /v1/responses HTTP/1.1\r\nhost: g\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ),
    ] {
        for framing in [
            format!("content-length: {length}\r\n\r\n{hidden}"),
            format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"),
        ] {
            let bytes = format!("{head}{framing}");
            scene.behind(case, bytes.as_bytes()).await;
        }
    }
    for (case, head) in [
        (
            "behind a list",
            "GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n",
        ),
        (
            "behind nothing",
            "GET /v1/nowhere HTTP/1.1\r\nhost: g\r\n\r\n",
        ),
        (
            "behind an empty body",
            "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        scene
            .behind(case, format!("{head}{hidden}").as_bytes())
            .await;
    }
    scene.end().await;
}
