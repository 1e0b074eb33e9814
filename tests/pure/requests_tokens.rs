//! Tokens that are exchanged: assertions against the published vector, what is asked, and what answers are taken for.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rondo::core::time::WallTime;
use rondo::policy::identity::{Exchange, Grant};
use rondo::policy::provider::BaseUrl;
use rondo::policy::secret::Secret;
use rondo::providers::jwt::{KeyError, check_key, sign};
use rondo::providers::token::{TokenError, ask, read, renewed_after};
use serde_json::{Value, json};

/// The key of RFC 7515, appendix A.2, as PKCS #8.
pub const KEY: &str = include_str!("../fixtures/rfc7515-a2.pem");
/// 2026-01-01T00:00:00Z
const NOW: WallTime = WallTime::from_unix_micros(1_767_225_600_000_000);

#[test]
fn signatures_are_those_of_the_published_vector() {
    let input = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let wanted = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    assert_eq!(sign(&Secret::new(KEY), input.as_bytes()).unwrap(), wanted);
    assert_ne!(sign(&Secret::new(KEY), b"other").unwrap(), wanted);
}

#[test]
fn other_keys_are_refused() {
    let pkcs1 = KEY.replace("PRIVATE KEY", "RSA PRIVATE KEY");
    let cases = [
        ("", KeyError::NotPem),
        (&pkcs1, KeyError::NotPem),
        (
            "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----",
            KeyError::NotPem,
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            KeyError::NotRsa,
        ),
    ];
    for (key, wanted) in cases {
        assert_eq!(check_key(&Secret::new(key)), Err(wanted), "{key}");
    }
    assert_eq!(check_key(&Secret::new(KEY)), Ok(()));
}

fn account() -> Grant {
    Grant::ServiceAccount {
        email: "me@project.iam".into(),
        key_id: Some("key-1".into()),
        private_key: Secret::new(KEY),
        audience: "https://oauth2.example/token".into(),
    }
}

fn at_endpoint(grant: Grant) -> Exchange {
    let endpoint = BaseUrl {
        tls: true,
        host: "oauth2.example".into(),
        port: 443,
        authority: "oauth2.example".into(),
        path: "/token".into(),
    };
    Exchange { endpoint, grant }
}

#[test]
fn an_assertion_says_who_for_what_to_whom_and_how_long() {
    let asked = ask(&at_endpoint(account()), NOW).unwrap();
    assert_eq!((asked.method, asked.path.expose()), ("POST", "/token"));
    assert_eq!(asked.headers.len(), 1);
    assert_eq!(
        asked.headers[0].1.expose(),
        "application/x-www-form-urlencoded"
    );
    let body = asked.body.expose();
    let (grant, assertion) = body.split_once("&assertion=").unwrap();
    assert_eq!(
        grant,
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
    );
    let parts: Vec<&str> = assertion.split('.').collect();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(
        part(parts[0]),
        json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"})
    );
    assert_eq!(
        part(parts[1]),
        json!({
            "iss": "me@project.iam", "scope": "https://www.googleapis.com/auth/cloud-platform",
            "aud": "https://oauth2.example/token", "iat": 1_767_225_600, "exp": 1_767_229_200,
        })
    );
    let signed = format!("{}.{}", parts[0], parts[1]);
    assert_eq!(
        parts[2],
        sign(&Secret::new(KEY), signed.as_bytes()).unwrap()
    );
    assert!(
        !format!("{asked:?}").contains(parts[2]),
        "a debug print shows it"
    );
}

fn answer(grant: &Grant, status: u16, body: &str) -> Result<(String, Duration), TokenError> {
    let token = read(grant, status, body.as_bytes(), NOW)?;
    Ok((token.secret.expose().to_owned(), token.lifetime))
}

#[test]
fn a_good_answer_is_a_token_and_its_time() {
    let good = r#"{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}"#;
    assert_eq!(
        answer(&account(), 200, good),
        Ok(("ya29.x".to_owned(), Duration::from_secs(3599)))
    );
    let for_ever = r#"{"access_token":"x","expires_in":99999999}"#;
    let (_, lifetime) = answer(&account(), 200, for_ever).unwrap();
    assert_eq!(lifetime, Duration::from_secs(86_400));
}

#[test]
fn any_other_answer_is_none_and_repeats_nothing() {
    let cases = [
        (
            200,
            r#"{"expires_in":3599}"#,
            "the endpoint's answer has no usable access_token",
        ),
        (
            200,
            r#"{"access_token":"","expires_in":3599}"#,
            "the endpoint's answer has no usable access_token",
        ),
        (
            200,
            r#"{"access_token":"a\nb","expires_in":3599}"#,
            "the endpoint's answer has no usable access_token",
        ),
        (
            200,
            r#"{"access_token":"x"}"#,
            "the endpoint's answer has no usable expires_in",
        ),
        (
            200,
            r#"{"access_token":"x","expires_in":0}"#,
            "the endpoint's answer has no usable expires_in",
        ),
        (
            200,
            "<html>",
            "the endpoint's answer has no usable access_token",
        ),
        (
            400,
            r#"{"error":"invalid_grant","error_description":"secret"}"#,
            "the endpoint answered 400 invalid_grant",
        ),
        (
            401,
            r#"{"error":"Secret-123"}"#,
            "the endpoint answered 401",
        ),
        (302, "", "the endpoint answered 302"),
    ];
    for (status, body, wanted) in cases {
        let found = answer(&account(), status, body).unwrap_err();
        assert_eq!(found.to_string(), wanted, "{body}");
    }
}

#[test]
fn the_next_token_is_asked_for_before_the_end() {
    let seconds = |lifetime| renewed_after(Duration::from_secs(lifetime)).as_secs();
    assert_eq!(seconds(3600), 3300);
    assert_eq!(seconds(1200), 900);
    assert_eq!(seconds(40), 30);
    assert_eq!(
        renewed_after(Duration::from_secs(1)),
        Duration::from_millis(750)
    );
}

#[test]
fn a_lasting_token_becomes_a_short_lived_one() {
    let grant = Grant::Copilot {
        token: Secret::new("gho_lasting"),
        editor_version: "rondo/1".into(),
    };
    let asked = ask(&at_endpoint(grant.clone()), NOW).unwrap();
    assert_eq!((asked.method, asked.body.expose()), ("GET", ""));
    let headers: Vec<_> = asked
        .headers
        .iter()
        .map(|(name, value)| (*name, value.expose()))
        .collect();
    assert_eq!(
        headers,
        [
            ("authorization", "token gho_lasting"),
            ("editor-version", "rondo/1")
        ]
    );
    assert!(!format!("{asked:?}{grant:?}").contains("gho_"));
    let good = r#"{"token":"tid=1;exp=2:mac","expires_at":1767227400,"refresh_in":1500}"#;
    let wanted = ("tid=1;exp=2:mac".to_owned(), Duration::from_secs(1800));
    assert_eq!(answer(&grant, 200, good), Ok(wanted));
    let cases = [
        (
            200,
            r#"{"token":"x","expires_at":1767225600}"#,
            "the endpoint's answer has no usable expires_at",
        ),
        (
            200,
            r#"{"expires_at":1767227400}"#,
            "the endpoint's answer has no usable token",
        ),
        (
            401,
            r#"{"message":"Bad credentials"}"#,
            "the endpoint answered 401",
        ),
    ];
    for (status, body, wanted) in cases {
        assert_eq!(
            answer(&grant, status, body).unwrap_err().to_string(),
            wanted
        );
    }
}

#[test]
fn a_user_s_consent_becomes_a_token_and_is_never_shown() {
    let grant = Grant::RefreshToken {
        client_id: "id.apps".into(),
        client_secret: Secret::new("s&cret"),
        refresh_token: Secret::new("1//refresh"),
    };
    let asked = ask(&at_endpoint(grant.clone()), NOW).unwrap();
    let wanted = "grant_type=refresh_token&client_id=id.apps&client_secret=s%26cret&refresh_token=1%2F%2Frefresh";
    assert_eq!((asked.method, asked.body.expose()), ("POST", wanted));
    assert!(
        !format!("{asked:?}{grant:?}").contains("refresh&")
            && !format!("{grant:?}").contains("1//")
    );
    let good = r#"{"access_token":"ya29.u","expires_in":3599,"scope":"x","id_token":"y"}"#;
    let wanted = ("ya29.u".to_owned(), Duration::from_secs(3599));
    assert_eq!(answer(&grant, 200, good), Ok(wanted));
}

#[test]
fn the_metadata_server_is_asked_as_it_wants_to_be() {
    let asked = ask(&at_endpoint(Grant::MetadataServer), NOW).unwrap();
    assert_eq!((asked.method, asked.body.expose()), ("GET", ""));
    let headers = asked.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (*name, value.expose()))
        .collect();
    assert_eq!(headers, [("metadata-flavor", "Google")]);
    let good = r#"{"access_token":"ya29.m","expires_in":1800,"token_type":"Bearer"}"#;
    let wanted = ("ya29.m".to_owned(), Duration::from_secs(1800));
    assert_eq!(answer(&Grant::MetadataServer, 200, good), Ok(wanted));
}
