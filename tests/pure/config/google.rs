//! What only Vertex has: a project and a service account.

use rondo::config::effective;
use rondo::policy::identity::{Exchange, Grant, Identity};
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

fn exchange(settings: &str, env: &FakeEnv) -> Exchange {
    match provider(settings, env).identity {
        Identity::Exchanged(exchange) => exchange,
        other => panic!("{other:?}"),
    }
}

fn problems(settings: &str, env: &FakeEnv) -> String {
    compile_in(&file(settings), env).unwrap_err().to_string()
}

const USER: &str = r#"{ "type": "authorized_user", "client_id": "id.apps", "client_secret": "d-cret", "refresh_token": "1//me", "quota_project_id": "payer" }"#;

#[test]
fn the_chain_goes_from_the_variable_to_gcloud_to_the_metadata_server() {
    // R-C1
    let usual = "gcp: { location: l, project: p }";
    let mut env = env();
    env.set("HOME", "/home/me");
    let metadata = exchange(usual, &env);
    assert_eq!(metadata.grant, Grant::MetadataServer);
    assert!(!metadata.endpoint.tls);
    assert_eq!(
        (&*metadata.endpoint.authority, &*metadata.endpoint.path),
        (
            "metadata.google.internal",
            "/computeMetadata/v1/instance/service-accounts/default/token"
        )
    );
    env.set("GCE_METADATA_HOST", "127.0.0.1:81");
    assert_eq!(&*exchange(usual, &env).endpoint.authority, "127.0.0.1:81");
    env.file(
        "/home/me/.config/gcloud/application_default_credentials.json",
        USER,
    );
    let user = exchange(usual, &env);
    assert_eq!(&*user.endpoint.authority, "oauth2.googleapis.com");
    let Grant::RefreshToken {
        client_id,
        refresh_token,
        ..
    } = &user.grant
    else {
        panic!("{user:?}")
    };
    assert_eq!((&**client_id, refresh_token.expose()), ("id.apps", "1//me"));
    let headers = provider(usual, &env).own_headers;
    assert_eq!(
        (headers[0].name, &*headers[0].value),
        ("x-goog-user-project", "payer")
    );
    env.set("CLOUDSDK_CONFIG", "/elsewhere");
    assert_eq!(exchange(usual, &env).grant, Grant::MetadataServer);
    env.set("GOOGLE_APPLICATION_CREDENTIALS", "/etc/rondo/key.json");
    let account = exchange(usual, &env);
    assert!(
        matches!(account.grant, Grant::ServiceAccount { .. }),
        "{account:?}"
    );
    assert!(provider(usual, &env).own_headers.is_empty());
}

#[test]
fn a_project_comes_from_the_file_the_account_or_the_environment() {
    let mut env = env();
    let usual = "gcp: { location: l }";
    let found = problems(usual, &env);
    assert!(found.contains("gcp.project: missing"), "{found}");
    assert!(!found.contains("base_url"), "{found}");
    env.set("GOOGLE_CLOUD_PROJECT", "of-env");
    let path = |settings: &str, env: &FakeEnv| provider(settings, env).base.path.to_string();
    assert_eq!(path(usual, &env), "/v1/projects/of-env/locations/l");
    env.set("GOOGLE_APPLICATION_CREDENTIALS", "/etc/rondo/key.json");
    assert_eq!(path(usual, &env), "/v1/projects/own-project/locations/l");
    let given = "gcp: { location: l, project: given }";
    assert_eq!(path(given, &env), "/v1/projects/given/locations/l");
}

#[test]
fn what_the_chain_finds_and_cannot_use_is_refused() {
    // R-C1
    let settings = "gcp: { location: l, project: p }";
    let cases = [
        (
            r#"{ "type": "external_account" }"#,
            "workload identity federation is not supported",
        ),
        (
            r#"{ "type": "impersonated_service_account" }"#,
            "its `type` is impersonated_service_account; needed is service_account or authorized_user",
        ),
        (
            r#"{ "type": "authorized_user", "client_id": "x", "client_secret": "d-cret" }"#,
            "it has no `refresh_token`",
        ),
        (
            r#"{ "type": "authorized_user", "client_id": "x", "client_secret": "d-cret", "refresh_token": "1//me", "token_uri": "http://far.example" }"#,
            "its `token_uri` is not https",
        ),
        ("", "it is not JSON"),
    ];
    for (text, wanted) in cases {
        let mut env = FakeEnv::usual();
        env.set("GOOGLE_APPLICATION_CREDENTIALS", "/adc.json")
            .file("/adc.json", text);
        let found = problems(settings, &env);
        assert!(found.contains(wanted), "{found}");
        assert!(
            !found.contains("d-cret") && !found.contains("1//me"),
            "{found}"
        );
    }
    let mut env = FakeEnv::usual();
    env.set("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json");
    assert!(problems(settings, &env).contains("cannot read the file /nowhere.json"));
    let mut env = FakeEnv::usual();
    env.set("NO_GCE_CHECK", "true");
    assert!(problems(settings, &env).contains("keeps the metadata server from being asked"));
    env.set("NO_GCE_CHECK", "").set("GCE_METADATA_HOST", "a b");
    assert!(problems(settings, &env).contains("GCE_METADATA_HOST: a URL holds no spaces"));
}

#[test]
fn a_user_s_consent_is_never_shown() {
    let mut env = FakeEnv::usual();
    env.set("GOOGLE_APPLICATION_CREDENTIALS", "/adc.json")
        .file("/adc.json", USER);
    let loaded = compile_in(&file("gcp: { location: l, project: p }"), &env).unwrap();
    let shown = format!(
        "{}{:?}",
        effective(&loaded.snapshot),
        loaded.snapshot.providers
    );
    assert!(
        !shown.contains("d-cret") && !shown.contains("1//me"),
        "{shown}"
    );
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
