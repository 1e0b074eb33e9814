//! AWS signatures, against the vectors that AWS publishes.

use rondo::core::time::WallTime;
use rondo::policy::secret::Secret;
use rondo::providers::request_style::{BedrockVerb, bedrock_path};
use rondo::providers::sigv4::{Credentials, Scope, Signed, ToSign, payload_hash, sign};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const TOKEN: &str = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
/// 2015-08-30T12:36:00Z
const NOW: WallTime = WallTime::from_unix_micros(1_440_938_160_000_000);

struct Vector {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    token: Option<&'static str>,
    names: &'static str,
    signature: &'static str,
}

const PLAIN: Vector = Vector {
    name: "get-vanilla",
    method: "GET",
    path: "/",
    headers: &[],
    body: "",
    token: None,
    names: "host;x-amz-date",
    signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
};

/// Of the public test suite of version 4: the host, the time and the identity are the same in all.
const SUITE: &[Vector] = &[
    PLAIN,
    Vector {
        name: "get-vanilla-query-order-key-case",
        path: "/?Param2=value2&Param1=value1",
        signature: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ..PLAIN
    },
    Vector {
        name: "get-utf8",
        path: "/\u{1234}",
        signature: "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ..PLAIN
    },
    Vector {
        name: "get-unreserved",
        path: "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        signature: "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ..PLAIN
    },
    Vector {
        name: "get-vanilla-with-session-token",
        token: Some(TOKEN),
        names: "host;x-amz-date;x-amz-security-token",
        signature: "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        ..PLAIN
    },
    Vector {
        name: "get-header-key-duplicate",
        headers: &[
            ("my-header1", "value2"),
            ("my-header1", "value2"),
            ("my-header1", "value1"),
        ],
        names: "host;my-header1;x-amz-date",
        signature: "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        ..PLAIN
    },
    Vector {
        name: "get-header-value-trim",
        headers: &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")],
        names: "host;my-header1;my-header2;x-amz-date",
        signature: "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ..PLAIN
    },
    Vector {
        name: "post-vanilla",
        method: "POST",
        signature: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ..PLAIN
    },
    Vector {
        name: "post-x-www-form-urlencoded",
        method: "POST",
        headers: &[("content-type", "application/x-www-form-urlencoded")],
        body: "Param1=value1",
        names: "content-type;host;x-amz-date",
        signature: "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ..PLAIN
    },
];

fn signed(vector: &Vector) -> Signed {
    let secret = Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    let token = vector.token.map(Secret::new);
    let hash = payload_hash([vector.body.as_bytes()]);
    let request = ToSign {
        method: vector.method,
        path: vector.path,
        host: "example.amazonaws.com",
        headers: vector.headers,
        payload_hash: &hash,
    };
    let who = Credentials {
        access_key_id: "AKIDEXAMPLE",
        secret_access_key: &secret,
        session_token: token.as_ref(),
    };
    let scope = Scope {
        region: "us-east-1",
        service: "service",
    };
    sign(&request, &who, &scope, NOW)
}

#[test]
fn signatures_are_those_of_the_published_suite() {
    for vector in SUITE {
        let found = signed(vector);
        assert_eq!(found.date, "20150830T123600Z");
        let wanted = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={}, Signature={}",
            vector.names, vector.signature
        );
        assert_eq!(found.authorization, wanted, "{}", vector.name);
    }
}

#[test]
fn a_body_in_parts_has_the_hash_of_the_whole() {
    assert_eq!(payload_hash([]), EMPTY);
    assert_eq!(payload_hash([&b""[..]]), EMPTY);
    let whole = payload_hash([&b"Param1=value1"[..]]);
    assert_eq!(payload_hash([&b"Param1"[..], b"=", b"value1"]), whole);
    assert_eq!(
        whole,
        "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"
    );
}

#[test]
fn a_sent_escape_is_escaped_again() {
    let path = bedrock_path("", "anthropic.claude-x-v1:0", BedrockVerb::Converse);
    let sent: &'static str = Box::leak(path.into_boxed_str());
    assert!(sent.contains("%3A"));
    let as_sent = signed(&Vector {
        path: sent,
        ..PLAIN
    });
    let as_name = signed(&Vector {
        path: "/model/anthropic.claude-x-v1:0/converse",
        ..PLAIN
    });
    assert_ne!(as_sent, as_name, "the path is signed as it is sent");
}

#[test]
fn every_part_of_a_request_is_covered() {
    let plain = signed(&PLAIN);
    let changed = [
        Vector {
            method: "PUT",
            ..PLAIN
        },
        Vector {
            path: "/x",
            ..PLAIN
        },
        Vector {
            path: "/?a",
            ..PLAIN
        },
        Vector { body: "x", ..PLAIN },
        Vector {
            token: Some("t"),
            ..PLAIN
        },
        Vector {
            headers: &[("a", "b")],
            ..PLAIN
        },
    ];
    for vector in &changed {
        assert_ne!(signed(vector), plain);
    }
    let query = |path| signed(&Vector { path, ..PLAIN });
    assert_eq!(query("/?b=%7e&a"), query("/?a=&b=~"));
    assert_ne!(query("/?a=%zz"), query("/?a=zz"));
}
