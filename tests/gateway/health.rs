//! `rondo health` against servers that are well, unwell, and no servers at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use rondo::app::health::{Unwell, ask};

/// A server for one request. Returns its address and what it was asked.
fn once(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 256];
        while !request.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "{request:?}");
            request.extend_from_slice(&piece[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, asked)
}

#[test]
fn a_good_answer_is_well() {
    let (address, asked) = once("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    assert_eq!(ask(&format!("http://{address}/readyz")).unwrap(), 200);
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("GET /readyz HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");
}

#[test]
fn any_other_answer_is_unwell() {
    let (address, _) = once("HTTP/1.1 503 Service Unavailable\r\n\r\n");
    assert!(matches!(
        ask(&format!("http://{address}")),
        Err(Unwell::Status(503))
    ));
    for not_http in [
        "",
        "HTTP/1.1",
        "HTTP/1.1 abc\r\n",
        "HTTP/1.1 999 No\r\n",
        "SSH-2.0-x\r\n",
    ] {
        let (address, _) = once(not_http);
        let answer = ask(&format!("http://{address}/"));
        assert!(
            matches!(answer, Err(Unwell::NotHttp)),
            "{not_http:?}: {answer:?}"
        );
    }
}

#[test]
fn nobody_there_is_unwell() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(matches!(
        ask(&format!("http://{free}/readyz")),
        Err(Unwell::Unreachable(_))
    ));
}

#[test]
fn only_plain_addresses_are_asked() {
    for url in [
        "",
        "localhost:1",
        "https://localhost:1/",
        "http://",
        "http://a@b/",
        "http://a/b c",
        "http://a/\r\nx: y",
    ] {
        assert!(matches!(ask(url), Err(Unwell::Url(_))), "{url:?}");
    }
}
