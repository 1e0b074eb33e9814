//! Who a client is, by what it shows; and that nothing of it is kept.

use rondo::policy::clients::ClientKeys;
use rondo::policy::ordering::Client;
use rondo::providers::client_headers::credentials;

const KEYS: [(&str, &[u8]); 2] = [("app", b"sk-app"), ("batch", b"sk-batch")];

fn clients(salt: u8) -> ClientKeys {
    let keys = KEYS.iter().map(|(name, key)| ((*name).into(), *key));
    ClientKeys::new(true, [salt; 32], keys)
}

fn who(headers: &[(&str, &'static str)], query: Option<&'static str>) -> Client {
    let get = |name: &str| {
        let found = headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_bytes())
    };
    clients(1).identify(credentials(get, query))
}

#[test]
fn a_client_is_known_by_any_usual_form_of_its_key() {
    let app = Client::Known("app".into());
    assert_eq!(who(&[("authorization", "Bearer sk-app")], None), app);
    assert_eq!(who(&[("authorization", "bearer  sk-app ")], None), app);
    for header in ["x-api-key", "api-key", "x-goog-api-key"] {
        assert_eq!(who(&[(header, "sk-app")], None), app);
    }
    assert_eq!(who(&[], Some("alt=sse&key=sk-app")), app);
    // The first that is known counts, whatever else is shown.
    assert_eq!(
        who(
            &[("authorization", "Bearer other"), ("x-api-key", "sk-app")],
            None
        ),
        app
    );
}

#[test]
fn near_misses_are_not_known() {
    let near = [
        "sk-ap",
        "sk-appp",
        "SK-APP",
        "sk-app\0",
        " ",
        "Bearer sk-app",
    ];
    for text in near {
        assert!(
            matches!(who(&[("x-api-key", text)], None), Client::Unknown(_)),
            "{text:?}"
        );
    }
    for header in [
        ("authorization", "Basic sk-app"),
        ("authorization", "sk-app"),
        ("x-api-key", ""),
    ] {
        assert_eq!(who(&[header], None), Client::Absent, "{header:?}");
    }
    assert_eq!(who(&[], Some("monkey=sk-app")), Client::Absent);
}

// R-X2: what is left of a credential is a number that only this process could make.
#[test]
fn an_unknown_credential_is_a_keyed_hash() {
    let hash =
        |salt: u8, text: &'static str| clients(salt).identify(std::iter::once(text.as_bytes()));
    assert_eq!(hash(1, "sk-x"), hash(1, "sk-x"));
    assert_ne!(hash(1, "sk-x"), hash(1, "sk-y"));
    assert_ne!(hash(1, "sk-x"), hash(2, "sk-x"));
    let shown = format!("{:?}", clients(7));
    assert!(
        shown.contains("app") && !shown.contains("sk-") && !shown.contains('7'),
        "{shown}"
    );
}
