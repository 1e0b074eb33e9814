//! Where an identity of AWS is looked for: the places in their order, and what is refused there.

use rondo::config::effective;
use rondo::policy::aws::{AwsAuthorization, AwsSource};
use rondo::policy::identity::Identity;
use rondo::policy::provider::Provider;

use super::{FakeEnv, compile_in};

const FILE: &str = "\
providers:
  a: { adapter: bedrock, aws: { region: eu-west-1 } }
routes: [{ name: gpt, models: [\"*\"], targets: [{ name: only, provider: a }] }]
";

/// Variables, and the two shared files.
fn env(vars: &[(&str, &str)], credentials: &str, config: &str) -> FakeEnv {
    let mut env = FakeEnv::usual();
    env.set("HOME", "/h");
    for (name, value) in vars {
        env.set(name, value);
    }
    if !credentials.is_empty() {
        env.file("/h/.aws/credentials", credentials);
    }
    if !config.is_empty() {
        env.file("/h/.aws/config", config);
    }
    env
}

fn provider(env: &FakeEnv) -> Provider {
    let loaded = compile_in(FILE, env).unwrap_or_else(|problems| panic!("{problems}"));
    let provider = Provider::clone(&loaded.snapshot.providers[0]);
    let shown = format!("{}{:?}", effective(&loaded.snapshot), provider);
    for secret in ["s3cret", "t0ken", "ext3rnal", "/uu-id"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    provider
}

fn source(env: &FakeEnv) -> AwsSource {
    match provider(env).identity {
        Identity::AwsSession(session) => {
            assert_eq!(&*session.region, "eu-west-1");
            session.source
        }
        other => panic!("{other:?}"),
    }
}

fn error(env: &FakeEnv) -> String {
    let problems = compile_in(FILE, env).unwrap_err().to_string();
    assert!(problems.contains("providers.a.aws: "), "{problems}");
    assert!(!problems.contains("s3cret"), "{problems}");
    problems
}

const KEYS: &str = "[default]\naws_access_key_id = AK\naws_secret_access_key = s3cret\n";
const WEB: [(&str, &str); 2] = [
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
    ("AWS_ROLE_ARN", "arn:aws:iam::1:role/web"),
];
const CONTAINER: (&str, &str) = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/uu-id?x=1");

#[test]
fn every_place_comes_before_the_next() {
    // R-C1
    let vars: Vec<_> = WEB.into_iter().chain([CONTAINER]).collect();
    let phrase = |env: &FakeEnv| provider(env).identity.phrase().unwrap();
    let mut all = env(&vars, KEYS, "");
    all.set("AWS_ACCESS_KEY_ID", "AKENV")
        .set("AWS_SECRET_ACCESS_KEY", "s3cret");
    assert_eq!(
        phrase(&all),
        "AWS signature for eu-west-1, access key of the environment"
    );
    let profile = env(&vars, KEYS, "");
    assert_eq!(
        phrase(&profile),
        "AWS signature for eu-west-1, access key of the profile default"
    );
    let web = env(&vars, "", "");
    assert_eq!(
        phrase(&web),
        "AWS signature for eu-west-1, renewed by the role arn:aws:iam::1:role/web, for the token in /var/run/token"
    );
    let container = env(&vars[2..], "", "");
    assert_eq!(
        phrase(&container),
        "AWS signature for eu-west-1, renewed by the container's agent at 169.254.170.2"
    );
    let instance = env(&[], "", "");
    assert_eq!(
        phrase(&instance),
        "AWS signature for eu-west-1, renewed by the instance's metadata at 169.254.169.254"
    );
    let found = error(&env(&[("AWS_EC2_METADATA_DISABLED", "TRUE")], "", ""));
    assert!(found.contains("no credential"), "{found}");
    all.set("AWS_BEARER_TOKEN_BEDROCK", "bedrock-t0ken");
    let bearer = provider(&all);
    assert_eq!(bearer.identity, Identity::Keys);
    assert_eq!(bearer.keys[0].secret.expose(), "bedrock-t0ken");
}

#[test]
fn a_profile_may_stand_in_either_file() {
    let config = "[profile work]\nregion = eu-west-1\naws_access_key_id = AK\naws_secret_access_key = s3cret\ns3 =\n  aws_session_token = nested\n[sso-session work]\nx = 1\n";
    let found = provider(&env(&[("AWS_PROFILE", "work")], "", config));
    let Identity::Aws(aws) = &found.identity else {
        panic!("{found:?}")
    };
    assert_eq!(
        (aws.access_key_id.expose(), &aws.session_token),
        ("AK", &None)
    );
    let found = error(&env(&[("AWS_PROFILE", "wrok")], "", config));
    assert!(
        found.contains("AWS_PROFILE names the profile wrok, which is in neither"),
        "{found}"
    );
    let other = env(
        &[("AWS_CONFIG_FILE", "/c"), ("AWS_PROFILE", "work")],
        "",
        "",
    );
    let mut other = other;
    other.file("/c", config);
    assert!(matches!(provider(&other).identity, Identity::Aws(_)));
}

#[test]
fn the_region_may_come_from_the_profile() {
    let text = FILE.replace("region: eu-west-1", "");
    let env = env(&[], KEYS, "[default]\nregion = ap-south-1\n");
    let loaded = compile_in(&text, &env).unwrap_or_else(|problems| panic!("{problems}"));
    let host = &loaded.snapshot.providers[0].base.host;
    assert_eq!(&**host, "bedrock-runtime.ap-south-1.amazonaws.com");
}

#[test]
fn a_role_is_assumed_with_what_its_profile_names() {
    // R-C1
    let config = "\
[default]
role_arn = arn:aws:iam::1:role/outer
source_profile = middle
external_id = ext3rnal
role_session_name = me
[profile middle]
role_arn = arn:aws:iam::1:role/inner
source_profile = keys
[profile self]
role_arn = arn:aws:iam::1:role/own
source_profile = self
aws_access_key_id = AK
aws_secret_access_key = s3cret
[profile instance]
role_arn = arn:aws:iam::1:role/own
credential_source = Ec2InstanceMetadata
[profile web]
role_arn = arn:aws:iam::1:role/own
web_identity_token_file = /t
";
    let keys = KEYS.replace("default", "keys");
    let AwsSource::Role(outer) = source(&env(&[], &keys, config)) else {
        panic!("no role")
    };
    assert_eq!(
        (&*outer.arn, &*outer.session_name),
        ("arn:aws:iam::1:role/outer", "me")
    );
    assert_eq!(outer.external_id.as_ref().unwrap().expose(), "ext3rnal");
    assert_eq!(&*outer.endpoint.authority, "sts.eu-west-1.amazonaws.com");
    let AwsSource::Role(inner) = &outer.base else {
        panic!("{outer:?}")
    };
    assert_eq!(
        (&*inner.arn, &*inner.session_name),
        ("arn:aws:iam::1:role/inner", "rondo")
    );
    assert!(matches!(&inner.base, AwsSource::Fixed(_)), "{inner:?}");
    assert_eq!(AwsSource::Role(outer).endpoints().len(), 2);
    let of = |profile| source(&env(&[("AWS_PROFILE", profile)], "", config)).phrase();
    assert_eq!(
        of("self"),
        "the role arn:aws:iam::1:role/own, assumed with the access key of the profile self"
    );
    assert_eq!(
        of("instance"),
        "the role arn:aws:iam::1:role/own, assumed with the instance's metadata at 169.254.169.254"
    );
    assert_eq!(
        of("web"),
        "the role arn:aws:iam::1:role/own, for the token in /t"
    );
}

#[test]
fn what_a_profile_cannot_mean_is_refused() {
    // R-C1
    let role = "[default]\nrole_arn = arn:aws:iam::1:role/r\n";
    let cases = [
        (
            role.to_owned(),
            "it has neither source_profile nor credential_source",
        ),
        (
            format!("{role}source_profile = gone\n"),
            "its source_profile gone has no credential",
        ),
        (
            format!("{role}source_profile = default\n"),
            "its source_profile default leads back to it",
        ),
        (
            format!(
                "{role}source_profile = b\n[profile b]\nrole_arn = x\nsource_profile = default\n"
            ),
            "leads back to it",
        ),
        (
            format!("{role}credential_source = Nowhere\n"),
            "none of Environment, Ec2InstanceMetadata, EcsContainer",
        ),
        (
            format!("{role}credential_source = Environment\n"),
            "its credential_source has no credential",
        ),
        (
            format!("{role}mfa_serial = x\nsource_profile = default\n"),
            "mfa_serial, which takes a person",
        ),
        (
            "[default]\nsso_session = work\n".to_owned(),
            "signs in by sso_session, which takes a person; give it a credential_process",
        ),
        (
            "[default]\ncredential_process = \"a\n".to_owned(),
            "has a quote that does not end",
        ),
    ];
    for (config, wanted) in cases {
        let found = error(&env(&[], "", &config));
        assert!(found.contains(wanted), "{found}");
    }
    let long: String = (0..7)
        .map(|n| {
            format!(
                "[profile p{n}]\nrole_arn = r\nsource_profile = p{}\n",
                n + 1
            )
        })
        .collect();
    let found = error(&env(&[("AWS_PROFILE", "p0")], "", &long));
    assert!(found.contains("a chain of more than 5 roles"), "{found}");
}

#[test]
fn a_program_is_named_word_by_word_and_no_shell_reads_it() {
    let config =
        "[default]\ncredential_process = /opt/my\\ tool \"a b\"'c d' '' --x=\"q\\\"q\" $HOME\n";
    let AwsSource::Process(process) = source(&env(&[], "", config)) else {
        panic!("no program")
    };
    let words: Vec<&str> = process.words.iter().map(|word| word.expose()).collect();
    assert_eq!(words, ["/opt/my tool", "a bc d", "", "--x=q\"q", "$HOME"]);
}

#[test]
fn a_web_identity_needs_a_role_and_a_safe_token_service() {
    let found = error(&env(&WEB[..1], "", ""));
    assert!(
        found.contains("AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is not"),
        "{found}"
    );
    let with = |name, value| [WEB[0], WEB[1], (name, value)];
    let url = "AWS_ENDPOINT_URL_STS";
    let found = error(&env(&with(url, "http://far.example"), "", ""));
    assert!(
        found.contains("AWS_ENDPOINT_URL_STS is not https"),
        "{found}"
    );
    let AwsSource::WebIdentity(web) = source(&env(&with(url, "http://127.0.0.1:9"), "", "")) else {
        panic!("no web identity")
    };
    assert_eq!(
        (&*web.endpoint.authority, &*web.session_name),
        ("127.0.0.1:9", "rondo")
    );
    let named = env(&with("AWS_ROLE_SESSION_NAME", "pod"), "", "");
    assert!(matches!(source(&named), AwsSource::WebIdentity(web) if &*web.session_name == "pod"));
}

#[test]
fn an_agent_is_near_or_asked_over_https() {
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let container = |vars: &[(&str, &str)]| match source(&env(vars, "", "")) {
        AwsSource::Container(container) => container,
        other => panic!("{other:?}"),
    };
    let cases = [
        (CONTAINER, "169.254.170.2", "/v2/uu-id?x=1"),
        (
            (FULL, "http://169.254.170.23/v1/credentials"),
            "169.254.170.23",
            "/v1/credentials",
        ),
        (
            (FULL, "http://[fd00:ec2::23]/v1/"),
            "[fd00:ec2::23]",
            "/v1/",
        ),
        ((FULL, "http://localhost:81"), "localhost:81", "/"),
        (
            (FULL, "https://far.example?a=b/c"),
            "far.example",
            "/?a=b/c",
        ),
    ];
    for (variable, authority, path) in cases {
        let found = container(&[variable]);
        assert_eq!(
            (&*found.endpoint.authority, found.path.expose()),
            (authority, path)
        );
        assert_eq!(found.authorization, None);
    }
    let found = error(&env(&[(FULL, "http://far.example/x")], "", ""));
    assert!(found.contains("leads away from this machine"), "{found}");
    let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "t0ken");
    let file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/f");
    let found = container(&[CONTAINER, token]).authorization;
    assert!(matches!(found, Some(AwsAuthorization::Token(token)) if token.expose() == "t0ken"));
    let found = container(&[CONTAINER, token, file]).authorization;
    assert_eq!(found, Some(AwsAuthorization::File("/f".into())));
}

#[test]
fn an_instance_s_address_may_be_another() {
    let authority = |vars: &[(&str, &str)]| match source(&env(vars, "", "")) {
        AwsSource::Instance(endpoint) => endpoint.authority.to_string(),
        other => panic!("{other:?}"),
    };
    let mode = ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");
    assert_eq!(authority(&[mode]), "[fd00:ec2::254]");
    let own = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9/");
    assert_eq!(authority(&[mode, own]), "127.0.0.1:9");
}
