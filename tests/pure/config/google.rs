//! What only Vertex has: a project and a service account.

use rondo::config::effective;
use rondo::policy::identity::{Grant, Identity};
use rondo::policy::provider::Provider;
use serde_json::json;

use super::{FakeEnv, compile_in};
use crate::requests_tokens::KEY;

/// The file of a service account, with one of its texts replaced.
pub fn account(replaced: &str) -> String {
    let (from, to) = replaced.split_once("=>").unwrap_or(("", ""));
    let text = json!({
        "type": "service_account", "project_id": "own-project", "private_key_id": "key-1", "private_key": KEY,
        "client_email": "me@own-project.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token",
    });
    let text = format!("{text:#}");
    match from.is_empty() {
        true => text,
        false => text.replace(from, to),
    }
}

fn file(settings: &str) -> String {
    format!(
        "\
providers:
  a: {{ adapter: vertex, {settings} }}
routes: [{{ name: gpt, models: [\"*\"], targets: [{{ name: only, provider: a }}] }}]
"
    )
}

fn env() -> FakeEnv {
    let mut env = FakeEnv::usual();
    env.set("ACCOUNT", &account(""))
        .file("/etc/rondo/key.json", &account(""));
    env
}

fn provider(settings: &str, env: &FakeEnv) -> Provider {
    let loaded = compile_in(&file(settings), env).unwrap_or_else(|problems| panic!("{problems}"));
    Provider::clone(&loaded.snapshot.providers[0])
}

fn url(provider: &Provider) -> String {
    format!("{}{}", provider.base.authority, provider.base.path)
}

#[test]
fn location_and_project_tell_the_address() {
    // R-C1
    let env = env();
    let found = provider(
        "gcp: { location: europe-west1, service_account: { file: key.json } }",
        &env,
    );
    let path = "/v1/projects/own-project/locations";
    assert_eq!(
        url(&found),
        format!("europe-west1-aiplatform.googleapis.com{path}/europe-west1")
    );
    let Identity::Exchanged(exchange) = &found.identity else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&*exchange.endpoint.host, &*exchange.endpoint.path),
        ("oauth2.googleapis.com", "/token")
    );
    let Grant::ServiceAccount { email, key_id, .. } = &exchange.grant else {
        panic!("{exchange:?}")
    };
    assert_eq!(&**email, "me@own-project.iam.gserviceaccount.com");
    assert_eq!(key_id.as_deref(), Some("key-1"));
    let global = provider(
        "gcp: { location: global, project: other, service_account: { env: ACCOUNT } }",
        &env,
    );
    assert_eq!(
        url(&global),
        "aiplatform.googleapis.com/v1/projects/other/locations/global"
    );
    let own = "base_url: \"http://127.0.0.1:1\", gcp: { location: l, project: p, service_account: { env: ACCOUNT } }";
    assert_eq!(
        url(&provider(own, &env)),
        "127.0.0.1:1/v1/projects/p/locations/l"
    );
    let whole = own.replace(":1\"", ":1/v1/projects/x/locations/y\"");
    assert_eq!(
        url(&provider(&whole, &env)),
        "127.0.0.1:1/v1/projects/x/locations/y"
    );
    let keys = provider(
        "keys: [{ name: k, secret: { env: KEY_A } }], gcp: { location: l, project: p }",
        &env,
    );
    assert_eq!(keys.identity, Identity::Keys);
}

#[test]
fn the_usual_variable_names_the_file() {
    let mut env = env();
    let settings = "gcp: { location: l }";
    let problems = compile_in(&file(settings), &env).unwrap_err().to_string();
    assert!(
        problems.contains(
            "gcp.service_account: missing, and GOOGLE_APPLICATION_CREDENTIALS is not set"
        ),
        "{problems}"
    );
    assert!(!problems.contains("base_url"), "{problems}");
    env.set("GOOGLE_APPLICATION_CREDENTIALS", "/etc/rondo/key.json");
    assert!(matches!(
        provider(settings, &env).identity,
        Identity::Exchanged(_)
    ));
}

#[test]
fn what_cannot_work_is_refused_and_nothing_of_it_is_shown() {
    // R-C1
    let cases = [
        (
            "service_account\"=>authorized_user\"",
            "its `type` is authorized_user; needed is service_account",
        ),
        (
            "service_account\"=>MIIEvQ\"",
            "its `type` is unknown; needed is service_account",
        ),
        ("client_email=>x", "it has no `client_email`"),
        ("token_uri=>x", "it has no `token_uri`"),
        (
            "BEGIN PRIVATE=>BEGIN RSA PRIVATE",
            "its `private_key` is not a PEM block",
        ),
        (
            "https://oauth2.googleapis.com=>http://oauth2.googleapis.com",
            "its `token_uri` is not https",
        ),
        (
            "https://oauth2.googleapis.com=>nowhere",
            "its `token_uri` is not a usable URL",
        ),
        ("{=>[", "it is not JSON"),
        (
            "own-project\"=>a/b\"",
            "gcp.project: missing, and no service account names one",
        ),
    ];
    for (replaced, wanted) in cases {
        let mut env = FakeEnv::usual();
        env.set("ACCOUNT", &account(replaced));
        let settings = "gcp: { location: l, service_account: { env: ACCOUNT } }";
        let problems = compile_in(&file(settings), &env).unwrap_err().to_string();
        assert!(problems.contains(wanted), "{problems}");
        assert!(!problems.contains("MIIE"), "{problems}");
    }
    let env = env();
    let both = "keys: [{ name: k, secret: { env: KEY_A } }], gcp: { location: l, service_account: { env: ACCOUNT } }";
    let problems = compile_in(&file(both), &env).unwrap_err().to_string();
    assert!(
        problems.contains("remove them or the service account"),
        "{problems}"
    );
    let text = file("gcp: {}").replace("vertex", "bedrock");
    let problems = compile_in(&text, &env).unwrap_err().to_string();
    assert!(
        problems.contains("gcp: only adapter vertex has this; bedrock has not"),
        "{problems}"
    );
    assert!(problems.contains("gcp.location: missing"), "{problems}");
}

#[test]
fn the_key_is_never_shown() {
    let env = env();
    let text = file("gcp: { location: l, service_account: { env: ACCOUNT } }");
    let loaded = compile_in(&text, &env).unwrap();
    let view = effective(&loaded.snapshot);
    let shown = json!({
        "service_account": { "email": "me@own-project.iam.gserviceaccount.com", "private_key": "[redacted]" },
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    assert_eq!(view["providers"]["a"]["gcp"], shown);
    assert!(!format!("{view}{:?}", loaded.snapshot.providers).contains("MIIE"));
}
