//! What only Bedrock has: an identity of AWS, and where it is found.

use rondo::config::effective;
use rondo::policy::aws::Source;
use rondo::policy::identity::Identity;
use rondo::policy::provider::Provider;
use serde_json::json;

use super::{FakeEnv, compile_in};

fn file(settings: &str) -> String {
    format!(
        "\
providers:
  a: {{ {settings} }}
routes: [{{ name: gpt, models: [\"*\"], targets: [{{ name: only, provider: a }}] }}]
"
    )
}

fn env() -> FakeEnv {
    let mut env = FakeEnv::usual();
    env.set("ID", "AKID")
        .set("SECRET", "sk-aws")
        .set("TOKEN", "tok-aws");
    env
}

fn provider(settings: &str, env: &FakeEnv) -> Provider {
    let loaded = compile_in(&file(settings), env).unwrap_or_else(|problems| panic!("{problems}"));
    Provider::clone(&loaded.snapshot.providers[0])
}

fn error(settings: &str, env: &FakeEnv) -> String {
    let problems = compile_in(&file(settings), env).unwrap_err().to_string();
    assert!(
        !problems.contains("sk-aws") && !problems.contains("tok-aws"),
        "{problems}"
    );
    problems
}

/// Key, secret, session token, and where they were found.
fn found(provider: &Provider) -> (String, String, Option<String>, Source) {
    let Identity::Aws(aws) = &provider.identity else {
        panic!("{:?}", provider.identity)
    };
    let token = aws
        .session_token
        .as_ref()
        .map(|token| token.expose().to_owned());
    let (id, secret) = (aws.access_key_id.expose(), aws.secret_access_key.expose());
    (id.to_owned(), secret.to_owned(), token, aws.source.clone())
}

const GIVEN: &str = "access_key_id: { env: ID }, secret_access_key: { env: SECRET }";

#[test]
fn the_file_comes_first_then_the_environment_then_the_profile() {
    // R-C1
    let given = format!(
        "adapter: bedrock, aws: {{ region: eu-west-1, {GIVEN}, session_token: {{ env: TOKEN }} }}"
    );
    let usual = "adapter: bedrock, aws: { region: eu-west-1 }";
    let mut env = env();
    env.set("HOME", "/home/me").file(
        "/home/me/.aws/credentials",
        "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = s3\n\n[ work ]\naws_access_key_id=AKWORK\nAWS_Secret_Access_Key=s=4\naws_session_token=t4\n",
    );
    let text = String::from;
    let from_file = (
        text("AKFILE"),
        text("s3"),
        None,
        Source::Profile("default".into()),
    );
    assert_eq!(found(&provider(usual, &env)), from_file);
    env.set("AWS_PROFILE", "work");
    let from_file = (
        text("AKWORK"),
        text("s=4"),
        Some(text("t4")),
        Source::Profile("work".into()),
    );
    assert_eq!(found(&provider(usual, &env)), from_file);
    env.set("AWS_ACCESS_KEY_ID", "AKENV")
        .set("AWS_SECRET_ACCESS_KEY", "s2");
    let from_env = (text("AKENV"), text("s2"), None, Source::Environment);
    assert_eq!(found(&provider(usual, &env)), from_env);
    let named = (
        text("AKID"),
        text("sk-aws"),
        Some(text("tok-aws")),
        Source::Configuration,
    );
    assert_eq!(found(&provider(&given, &env)), named);
    let keys = format!("{usual}, keys: [{{ name: k, secret: {{ env: KEY_A }} }}]");
    assert_eq!(provider(&keys, &env).identity, Identity::Keys);
}

#[test]
fn the_region_tells_the_address() {
    let base = |settings: &str, env: &FakeEnv| provider(settings, env).base.host.to_string();
    let mut env = env();
    let given = format!("adapter: bedrock, aws: {{ region: eu-west-1, {GIVEN} }}");
    assert_eq!(
        base(&given, &env),
        "bedrock-runtime.eu-west-1.amazonaws.com"
    );
    assert_eq!(
        base(
            &format!("{given}, base_url: \"https://vpce.example\""),
            &env
        ),
        "vpce.example"
    );
    let usual = format!("adapter: bedrock, aws: {{ {GIVEN} }}");
    env.set("AWS_DEFAULT_REGION", "cn-north-1");
    assert_eq!(
        base(&usual, &env),
        "bedrock-runtime.cn-north-1.amazonaws.com.cn"
    );
    env.set("AWS_REGION", "us-east-1");
    assert_eq!(
        base(&usual, &env),
        "bedrock-runtime.us-east-1.amazonaws.com"
    );
}

#[test]
fn what_cannot_work_is_refused() {
    // R-C1
    let mut env = env();
    env.set("AWS_EC2_METADATA_DISABLED", "true");
    let cases = [
        (
            "aws: {}",
            "providers.a.aws.region: missing, and neither AWS_REGION nor AWS_DEFAULT_REGION is set",
        ),
        (
            "aws: { region: r }",
            "providers.a.aws: no credential: set access_key_id and secret_access_key here, or AWS_ACCESS_KEY_ID",
        ),
        (
            "aws: { region: r, access_key_id: { env: ID } }",
            "providers.a.aws.secret_access_key: missing; access_key_id and secret_access_key go together",
        ),
        (
            "aws: { region: r, access_key_id: { env: ID }, secret_access_key: { env: NOWHERE } }",
            "NOWHERE is not set",
        ),
        (
            "keys: [{ name: k, secret: { env: KEY_A } }], aws: { region: r, access_key_id: { env: ID }, secret_access_key: { env: SECRET } }",
            "an access key signs instead: remove one of the two",
        ),
        ("aws: { region: \"a/b\" }", "aws.region: not usable"),
        (
            "mock: { answers: [ok] }, aws: { region: r, session_token: { env: TOKEN } }",
            "access_key_id: missing",
        ),
    ];
    for (settings, wanted) in cases {
        let found = error(&format!("adapter: bedrock, {settings}"), &env);
        assert!(found.contains(wanted), "{found}");
        assert!(!found.contains("base_url"), "{found}");
    }
    let found = error("adapter: openai, aws: { region: r }", &env);
    assert!(
        found.contains("providers.a.aws: only adapter bedrock has this; openai has not"),
        "{found}"
    );
    let mock = "adapter: bedrock, mock: { answers: [ok] }, aws: { region: r }";
    assert_eq!(provider(mock, &env).identity, Identity::Keys);
}

#[test]
fn secrets_are_never_shown() {
    // R-C1
    let env = env();
    let settings =
        format!("adapter: bedrock, aws: {{ region: r, {GIVEN}, session_token: {{ env: TOKEN }} }}");
    let loaded = compile_in(&file(&settings), &env).unwrap();
    let view = effective(&loaded.snapshot);
    assert_eq!(
        view["providers"]["a"]["aws"],
        json!({
            "region": "r", "access_key_id": "[redacted]", "secret_access_key": "[redacted]",
            "session_token": "[redacted]", "source": "the configuration",
        })
    );
    let debug = format!("{:?}", loaded.snapshot.providers);
    assert!(!debug.contains("sk-aws") && !debug.contains("tok-aws") && !debug.contains("AKID"));
}
