//! Sessions of AWS: what is asked of the token service, an agent and an instance, and what their answers are taken for.

use std::time::Duration;

use rondo::core::time::WallTime;
use rondo::policy::aws::{AwsContainer, AwsIdentity, AwsRole, AwsSource, AwsWebIdentity, Source};
use rondo::policy::provider::BaseUrl;
use rondo::policy::secret::Secret;
use rondo::providers::aws_session::{
    Given, Reading, ask_container, ask_instance_credentials, ask_instance_role,
    ask_instance_session, ask_role, ask_web_identity, read_instance_role, read_instance_session,
    read_json, read_process, read_role,
};
use rondo::providers::token::{Ask, TokenError};

/// 2026-01-01T00:00:00Z
const READING: Reading<'_> = Reading {
    region: "eu-west-1",
    now: WallTime::from_unix_micros(1_767_225_600_000_000),
};
const ROLE: &str = "<AssumeRoleResponse xmlns=\"x\"><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser>\
<Credentials>\n <AccessKeyId> ASIA1 </AccessKeyId><SecretAccessKey>s3/+=</SecretAccessKey><SessionToken>t0==</SessionToken>\
<Expiration>2026-01-01T01:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";
const JSON: &str = r#"{"Code":"Success","AccessKeyId":"ASIA1","SecretAccessKey":"s3","Token":"t0","Expiration":"2026-01-01T00:30:00Z","RoleArn":"r"}"#;

fn endpoint(path: &str) -> BaseUrl {
    BaseUrl {
        tls: true,
        host: "sts.example".into(),
        port: 443,
        authority: "sts.example".into(),
        path: path.into(),
    }
}

fn base(token: Option<&str>) -> AwsIdentity {
    AwsIdentity {
        region: "eu-west-1".into(),
        access_key_id: Secret::new("AKID"),
        secret_access_key: Secret::new("s3cret"),
        session_token: token.map(Secret::new),
        source: Source::Environment,
    }
}

fn role(external_id: Option<&str>) -> AwsRole {
    AwsRole {
        endpoint: endpoint(""),
        arn: "arn:aws:iam::1:role/r".into(),
        session_name: "me".into(),
        external_id: external_id.map(Secret::new),
        base: AwsSource::Fixed(base(None)),
    }
}

fn header<'a>(ask: &'a Ask, name: &str) -> Option<&'a str> {
    let mut found = ask.headers.iter().filter(|(known, _)| *known == name);
    found.next().map(|(_, value)| value.expose())
}

#[test]
fn a_role_is_asked_for_with_a_signature_for_the_token_service() {
    let ask = ask_role(&role(Some("e x")), &base(Some("t0")), &READING);
    assert_eq!(
        (ask.method, ask.path.expose(), ask.accept),
        ("POST", "/", "*/*")
    );
    assert_eq!(
        ask.body.expose(),
        "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me&ExternalId=e%20x"
    );
    let authorization = header(&ask, "authorization").unwrap();
    let wanted = "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=";
    assert!(authorization.starts_with(wanted), "{authorization}");
    assert_eq!(header(&ask, "x-amz-date"), Some("20260101T000000Z"));
    assert_eq!(header(&ask, "x-amz-security-token"), Some("t0"));
    let other = ask_role(&role(None), &base(None), &READING);
    assert_eq!(header(&other, "x-amz-security-token"), None);
    assert_ne!(header(&other, "authorization"), Some(authorization));
    let shown = format!("{ask:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("t0") && !shown.contains("e%20x"),
        "{shown}"
    );
}

#[test]
fn a_web_identity_is_its_own_proof() {
    let web = AwsWebIdentity {
        endpoint: endpoint("/sts"),
        arn: "arn".into(),
        session_name: "me".into(),
        token_file: "/t".into(),
    };
    let ask = ask_web_identity(&web, "ey.J/x");
    assert_eq!(
        (ask.path.expose(), ask.body.expose()),
        (
            "/sts",
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn&RoleSessionName=me&WebIdentityToken=ey.J%2Fx"
        )
    );
    assert_eq!(header(&ask, "authorization"), None);
}

#[test]
fn an_instance_is_asked_in_a_session() {
    let ask = ask_instance_session();
    assert_eq!(
        (ask.method, ask.path.expose()),
        ("PUT", "/latest/api/token")
    );
    assert_eq!(
        header(&ask, "x-aws-ec2-metadata-token-ttl-seconds"),
        Some("60")
    );
    let session = read_instance_session(200, b"AQAE==\n").unwrap();
    let path = "/latest/meta-data/iam/security-credentials/";
    let ask = ask_instance_role(&session);
    assert_eq!((ask.method, ask.path.expose()), ("GET", path));
    assert_eq!(header(&ask, "x-aws-ec2-metadata-token"), Some("AQAE=="));
    let ask = ask_instance_credentials(&session, "my-role");
    assert_eq!(ask.path.expose(), format!("{path}my-role"));
    assert_eq!(header(&ask, "x-aws-ec2-metadata-token"), Some("AQAE=="));
    assert_eq!(
        read_instance_role(200, b"my-role\nother\n").unwrap(),
        "my-role"
    );
    for (status, body) in [
        (200, "../x"),
        (200, "."),
        (200, ".."),
        (200, ""),
        (200, "a b"),
        (404, "my-role"),
    ] {
        assert!(
            read_instance_role(status, body.as_bytes()).is_err(),
            "{body}"
        );
    }
    for (status, body) in [(200, ""), (200, "a b"), (403, "x"), (200, "\u{e9}")] {
        assert!(
            read_instance_session(status, body.as_bytes()).is_err(),
            "{body}"
        );
    }
}

#[test]
fn an_agent_is_shown_its_token() {
    let container = AwsContainer {
        endpoint: endpoint(""),
        path: Secret::new("/v2/uu-id?a=b"),
        authorization: None,
    };
    let ask = ask_container(&container, Some(Secret::new("Basic x")));
    assert_eq!((ask.method, ask.path.expose()), ("GET", "/v2/uu-id?a=b"));
    assert_eq!(header(&ask, "authorization"), Some("Basic x"));
    assert!(!format!("{ask:?}{container:?}").contains("uu-id"));
    assert_eq!(
        header(&ask_container(&container, None), "authorization"),
        None
    );
}

fn parts(given: &Given) -> (&str, &str, Option<&str>, u64) {
    let identity = &given.identity;
    assert_eq!(
        (&*identity.region, &identity.source),
        ("eu-west-1", &Source::Renewed)
    );
    (
        identity.access_key_id.expose(),
        identity.secret_access_key.expose(),
        identity.session_token.as_ref().map(Secret::expose),
        given.lifetime.as_secs(),
    )
}

#[test]
fn good_answers_are_credentials_and_their_time() {
    let given = read_role(200, ROLE.as_bytes(), &READING).unwrap();
    assert_eq!(parts(&given), ("ASIA1", "s3/+=", Some("t0=="), 3600));
    let given = read_json(200, JSON.as_bytes(), &READING).unwrap();
    assert_eq!(parts(&given), ("ASIA1", "s3", Some("t0"), 1800));
    assert!(!format!("{given:?}").contains("s3"));
    let process = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s","SessionToken":"t","Expiration":"2026-01-01T01:00:00+00:30"}"#;
    let given = read_process(process.as_bytes(), &READING).unwrap();
    assert_eq!(parts(&given), ("A", "s", Some("t"), 1800));
    let lasting = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s"}"#;
    let given = read_process(lasting.as_bytes(), &READING).unwrap();
    assert_eq!(parts(&given), ("A", "s", None, 86_400));
    assert_eq!(given.lifetime, Duration::from_secs(86_400));
}

fn said(found: Result<Given, TokenError>) -> String {
    found.unwrap_err().to_string()
}

#[test]
fn any_other_answer_is_none_and_repeats_nothing() {
    let role = |status, body: &str| said(read_role(status, body.as_bytes(), &READING));
    let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>s3cret</Message></Error></ErrorResponse>";
    assert_eq!(role(403, denied), "the endpoint answered 403 AccessDenied");
    assert_eq!(
        role(500, "<Code>s3-cret</Code>"),
        "the endpoint answered 500"
    );
    assert_eq!(role(302, ROLE), "the endpoint answered 302");
    for (from, to, wanted) in [
        ("2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z", "Expiration"),
        ("2026-01-01T01:00:00Z", "soon", "Expiration"),
        ("<SessionToken>t0==</SessionToken>", "", "session token"),
        (" ASIA1 ", "", "AccessKeyId"),
        ("s3/+=", "a b", "SecretAccessKey"),
        ("</Credentials>", "", "session token"),
    ] {
        let wanted = format!("the endpoint's answer has no usable {wanted}");
        assert_eq!(role(200, &ROLE.replace(from, to)), wanted, "{from}");
    }
    let json = |status, body: &str| said(read_json(status, body.as_bytes(), &READING));
    assert_eq!(
        json(200, &JSON.replace("Success", "Failed")),
        "the endpoint answered 200 Failed"
    );
    assert_eq!(
        json(404, r#"{"code":"AuthorizationHeader","message":"s3"}"#),
        "the endpoint answered 404 AuthorizationHeader"
    );
    assert_eq!(
        json(200, &JSON.replace("Expiration", "x")),
        "the endpoint's answer has no usable Expiration"
    );
    assert_eq!(
        json(200, "<html>"),
        "the endpoint's answer has no usable session token"
    );
    let process = |body: &str| said(read_process(body.as_bytes(), &READING));
    assert_eq!(
        process("s3cret"),
        "the endpoint's answer has no usable Version (needed is 1)"
    );
    assert_eq!(
        process(r#"{"Version":2}"#),
        "the endpoint's answer has no usable Version (needed is 1)"
    );
    let ended = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"2025-01-01T00:00:00Z"}"#;
    assert_eq!(
        process(ended),
        "the endpoint's answer has no usable Expiration"
    );
}
