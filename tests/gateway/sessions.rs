//! Credentials of the machine: what AWS's own tools would find there, each against a server that plays its part.
//!
//! The gateway runs as a process of its own, since the environment is part of what is tested.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::clouds::{Signer, assert_signed_by};
use crate::support::client::{Answer, ask, call, post};
use crate::support::process::Process;
use crate::support::raw::{Request, Upstream};
use crate::support::{soon, until};

pub type Asked = Arc<Mutex<Vec<Request>>>;

/// A server that answers as the function says, and keeps what it was asked.
pub async fn serving(
    answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
) -> (Upstream, Asked) {
    let asked = Asked::default();
    let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
    let upstream = Upstream::start(move |mut link| {
        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
        async move {
            while let Some(request) = link.request().await {
                let (status, body) = answer(&request);
                seen.lock().unwrap().push(request);
                link.write(&crate::support::raw::json(status, &body)).await;
            }
        }
    })
    .await;
    (upstream, asked)
}

/// The runtime or platform behind the gateway.
pub async fn target() -> (Upstream, Asked) {
    serving(|_| (200, r#"{"output":{},"candidates":[]}"#.to_owned())).await
}

/// A time so many seconds from now, as AWS writes it.
fn in_seconds(seconds: u64) -> String {
    let at = SystemTime::now() + Duration::from_secs(seconds);
    let text = httpdate::fmt_http_date(at);
    let parts: Vec<&str> = text.split(' ').collect();
    let months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    let month = months.split(' ').position(|name| name == parts[2]).unwrap() + 1;
    format!("{}-{month:02}-{}T{}Z", parts[3], parts[1], parts[4])
}

fn role(name: &str, seconds: u64) -> String {
    format!(
        "<AssumeRoleResponse><Credentials><AccessKeyId>ASIA{name}</AccessKeyId><SecretAccessKey>s3cret-{name}</SecretAccessKey><SessionToken>t0ken-{name}</SessionToken><Expiration>{}</Expiration></Credentials></AssumeRoleResponse>",
        in_seconds(seconds)
    )
}

fn json(name: &str) -> String {
    format!(
        r#"{{"AccessKeyId":"ASIA{name}","SecretAccessKey":"s3cret-{name}","Token":"t0ken-{name}","Expiration":"{}"}}"#,
        in_seconds(3600)
    )
}

/// A directory of a test, removed at its end.
pub struct Home(PathBuf);

impl Home {
    pub fn new(name: &str, files: &[(&str, &str)]) -> Home {
        let folder = format!("rondo-{}-{name}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(path.join(".aws")).unwrap();
        let home = Home(path);
        for (name, text) in files {
            std::fs::write(home.0.join(name), text).unwrap();
        }
        home
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A provider of Bedrock with what the environment has, and a scripted one behind it.
pub fn bedrock(target: &Upstream) -> String {
    format!(
        "
providers:
  aws: {{ adapter: bedrock, base_url: \"http://{}\", aws: {{ region: eu-west-1 }} }}
  other: {{ adapter: bedrock, mock: {{ answers: [ok] }} }}
routes:
  - name: m
    models: [m]
    targets: [{{ name: first, provider: aws, model: x }}, {{ name: second, provider: other, model: y }}]
    routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }} }}
ledger: {{ store: off }}
",
        target.addr
    )
}

pub async fn start(yaml: &str, home: &Home, variables: &[(&str, &str)]) -> Process {
    let folder = home.path("");
    // What the machine that runs the tests has must not matter.
    let none = [
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUDSDK_CONFIG",
    ];
    let mut all: Vec<(&str, &str)> = none.into_iter().map(|name| (name, "")).collect();
    all.push(("HOME", &folder));
    all.extend_from_slice(variables);
    Process::start_in("", yaml, &all).await
}

async fn converse(process: &Process) -> Answer {
    call(
        process.addr,
        post("/model/m/converse", r#"{"messages":[]}"#),
    )
    .await
}

pub async fn exchanges(process: &Process, provider: &str, result: &str) -> f64 {
    let text = ask(process.admin, "GET", "/metrics")
        .await
        .text()
        .to_owned();
    let name =
        format!("rondo_token_exchanges_total{{provider=\"{provider}\",result=\"{result}\"}} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&name));
    lines.map(|value| value.parse::<f64>().unwrap()).sum()
}

/// The target saw a signature of this session.
fn assert_signed(request: &Request, name: &str) {
    let who = Signer {
        id: &format!("ASIA{name}"),
        secret: &format!("s3cret-{name}"),
        token: Some(&format!("t0ken-{name}")),
        scope: "eu-west-1/bedrock",
    };
    assert_signed_by(request, &who);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_s_web_identity_becomes_a_session_that_is_renewed() {
    // R-X2
    let (target, asked) = target().await;
    let turns = Mutex::new(0);
    let (service, exchanged) = serving(move |_| {
        let mut turns = turns.lock().unwrap();
        *turns += 1;
        match *turns {
            1 => (200, role("1", 4)),
            2 => (500, String::new()),
            _ => (200, role("2", 3600)),
        }
    })
    .await;
    let home = Home::new("web", &[("token", "first.jwt\n")]);
    let (file, url) = (home.path("token"), format!("http://{}", service.addr));
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.as_str()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod"),
        ("AWS_ENDPOINT_URL_STS", &url),
    ];
    let process = start(&bedrock(&target), &home, &variables).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    assert_signed(&asked.lock().unwrap().pop().unwrap(), "1");
    std::fs::write(&file, "second.jwt").unwrap();
    // A failed exchange is followed by another.
    until(|| service.requests() == 3).await;
    soon(async {
        loop {
            converse(&process).await;
            let last = asked.lock().unwrap().pop();
            if last.is_some_and(|request| request.head.contains("ASIA2")) {
                break;
            }
        }
    })
    .await;
    let bodies: Vec<String> = exchanged
        .lock()
        .unwrap()
        .iter()
        .map(|request| String::from_utf8(request.body.clone()).unwrap())
        .collect();
    assert!(
        bodies[0].contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fpod"),
        "{bodies:?}"
    );
    assert!(
        bodies[0].ends_with("WebIdentityToken=first.jwt"),
        "{bodies:?}"
    );
    assert!(
        bodies[2].ends_with("WebIdentityToken=second.jwt"),
        "{bodies:?}"
    );
    assert_eq!(exchanges(&process, "aws", "renewed").await, 2.0);
    assert_eq!(exchanges(&process, "aws", "refused").await, 1.0);
    let lines = process.until_logged("the endpoint answered 500", 1).await;
    assert!(
        lines[0].contains("provider aws: no AWS signature") && !lines[0].contains("jwt"),
        "{lines:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_assumed_with_the_keys_of_another_profile() {
    let (target, asked) = target().await;
    let (service, exchanged) = serving(|_| (200, role("r", 3600))).await;
    let config = "[profile work]\nrole_arn = arn:aws:iam::1:role/work\nsource_profile = keys\nexternal_id = e-1\n";
    let keys = "[keys]\naws_access_key_id = AKIDKEYS\naws_secret_access_key = s3cret-keys\n";
    let home = Home::new(
        "role",
        &[(".aws/config", config), (".aws/credentials", keys)],
    );
    let url = format!("http://{}", service.addr);
    let variables = [
        ("AWS_PROFILE", "work"),
        ("AWS_ENDPOINT_URL_STS", url.as_str()),
    ];
    let process = start(&bedrock(&target), &home, &variables).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    assert_signed(&asked.lock().unwrap().pop().unwrap(), "r");
    let exchange = exchanged.lock().unwrap().pop().unwrap();
    assert!(
        exchange.head.starts_with("POST / HTTP/1.1\r\n"),
        "{exchange:?}"
    );
    let body = std::str::from_utf8(&exchange.body).unwrap();
    assert!(
        body.starts_with("Action=AssumeRole&") && body.ends_with("ExternalId=e-1"),
        "{body}"
    );
    let who = Signer {
        id: "AKIDKEYS",
        secret: "s3cret-keys",
        token: None,
        scope: "eu-west-1/sts",
    };
    assert_signed_by(&exchange, &who);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_s_agent_is_shown_its_token() {
    let (target, asked) = target().await;
    let (agent, exchanged) = serving(|_| (200, json("c"))).await;
    let home = Home::new("container", &[("auth", "agent-token\n")]);
    let (file, url) = (
        home.path("auth"),
        format!("http://{}/v1/creds?x=1", agent.addr),
    );
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file),
    ];
    let process = start(&bedrock(&target), &home, &variables).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    assert_signed(&asked.lock().unwrap().pop().unwrap(), "c");
    let head = exchanged.lock().unwrap().pop().unwrap().head;
    assert!(head.starts_with("GET /v1/creds?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(
        head.to_lowercase()
            .contains("authorization: agent-token\r\n"),
        "{head}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_asked_in_a_session() {
    let (target, asked) = target().await;
    let (instance, exchanged) = serving(|request| {
        let in_session = request
            .head
            .to_lowercase()
            .contains("x-aws-ec2-metadata-token: session-1\r\n");
        let path = request.head.split(' ').nth(1).unwrap();
        match (path.rsplit('/').next().unwrap(), in_session) {
            ("token", false) if request.head.starts_with("PUT ") => (200, "session-1".to_owned()),
            ("", true) => (200, "my-role".to_owned()),
            ("my-role", true) => (200, json("i")),
            _ => (401, String::new()),
        }
    })
    .await;
    let home = Home::new("instance", &[]);
    let url = format!("http://{}", instance.addr);
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
    let process = start(&bedrock(&target), &home, &variables).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    assert_signed(&asked.lock().unwrap().pop().unwrap(), "i");
    assert_eq!(exchanged.lock().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gives_credentials_or_its_target_is_passed_over() {
    // R-X2
    let (target, asked) = target().await;
    let program = |text: &str, name: &str| {
        let home = Home::new(name, &[("print", text)]);
        let command = format!("/bin/sh '{}' s3cret-argument", home.path("print"));
        let config = format!("[default]\ncredential_process = {command}\n");
        std::fs::write(home.0.join(".aws/config"), config).unwrap();
        home
    };
    let printed = r#"{"Version":1,"AccessKeyId":"ASIAp","SecretAccessKey":"s3cret-p","SessionToken":"t0ken-p"}"#;
    let home = program(
        &format!("test \"$1\" = s3cret-argument && echo '{printed}'"),
        "good",
    );
    let process = start(&bedrock(&target), &home, &[]).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    assert_signed(&asked.lock().unwrap().pop().unwrap(), "p");
    let cases = [
        (
            "echo s3cret-stderr >&2; exit 3",
            "the program ended with 3",
            "local",
        ),
        ("echo s3cret-stdout", "has no usable Version", "malformed"),
        ("cat /dev/zero", "the program prints too much", "local"),
    ];
    for (number, (text, wanted, result)) in cases.into_iter().enumerate() {
        let home = program(text, &format!("bad-{number}"));
        let process = start(&bedrock(&target), &home, &[]).await;
        let found = converse(&process).await;
        assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
        let lines = process.until_logged(wanted, 1).await;
        assert!(!lines[0].contains("s3cret"), "{lines:?}");
        assert!(exchanges(&process, "aws", result).await >= 1.0);
    }
    assert!(
        asked.lock().unwrap().is_empty(),
        "nothing is sent without a signature"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_of_the_environment_is_shown_as_one() {
    let (target, asked) = target().await;
    let home = Home::new("bearer", &[]);
    let variables = [("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key")];
    let process = start(&bedrock(&target), &home, &variables).await;
    assert_eq!(
        converse(&process).await.header("x-rondo-target"),
        Some("first")
    );
    let head = asked.lock().unwrap().pop().unwrap().head.to_lowercase();
    assert!(
        head.contains("authorization: bearer bedrock-api-key\r\n"),
        "{head}"
    );
}
