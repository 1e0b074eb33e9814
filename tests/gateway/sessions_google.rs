//! Credentials of the machine: what Google's own tools would find there. What the helpers do is said in [`crate::sessions`].

use crate::sessions::{Home, bedrock, exchanges, serving, start, target};
use crate::support::client::{Answer, call, post};
use crate::support::process::Process;
use crate::support::raw::Upstream;

fn vertex(target: &Upstream) -> String {
    let yaml = bedrock(target).replace("adapter: bedrock", "adapter: vertex");
    yaml.replace(
        "aws: { region: eu-west-1 }",
        "gcp: { location: l, project: p }",
    )
}

async fn generate(process: &Process) -> Answer {
    let path = "/v1beta/models/m:generateContent";
    call(process.addr, post(path, r#"{"contents":[]}"#)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_server_s_token_is_shown_to_vertex() {
    let (target, asked) = target().await;
    let token = r#"{"access_token":"ya29.meta","expires_in":3600,"token_type":"Bearer"}"#;
    let (server, exchanged) = serving(move |_| (200, token.to_owned())).await;
    let home = Home::new("metadata", &[]);
    let host = server.addr.to_string();
    let variables = [("GCE_METADATA_HOST", host.as_str())];
    let process = start(&vertex(&target), &home, &variables).await;
    assert_eq!(
        generate(&process).await.header("x-rondo-target"),
        Some("first")
    );
    let head = asked.lock().unwrap().pop().unwrap().head;
    assert!(
        head.contains("authorization: Bearer ya29.meta\r\n"),
        "{head}"
    );
    let head = exchanged.lock().unwrap().pop().unwrap().head;
    let path = "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\n";
    assert!(head.starts_with(path), "{head}");
    assert!(
        head.to_lowercase().contains("metadata-flavor: google\r\n"),
        "{head}"
    );
    assert_eq!(exchanges(&process, "aws", "renewed").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_s_consent_becomes_a_token_and_names_who_pays() {
    let (target, asked) = target().await;
    let token = r#"{"access_token":"ya29.user","expires_in":3600}"#;
    let (server, exchanged) = serving(move |_| (200, token.to_owned())).await;
    let file = format!(
        r#"{{"type":"authorized_user","client_id":"c","client_secret":"d","refresh_token":"1//r","quota_project_id":"payer","token_uri":"http://{}/token"}}"#,
        server.addr
    );
    let home = Home::new("user", &[("application_default_credentials.json", &file)]);
    let folder = home.path("");
    let variables = [("CLOUDSDK_CONFIG", folder.as_str())];
    let process = start(&vertex(&target), &home, &variables).await;
    assert_eq!(
        generate(&process).await.header("x-rondo-target"),
        Some("first")
    );
    let head = asked.lock().unwrap().pop().unwrap().head;
    assert!(
        head.contains("authorization: Bearer ya29.user\r\n"),
        "{head}"
    );
    assert!(head.contains("x-goog-user-project: payer\r\n"), "{head}");
    let exchange = exchanged.lock().unwrap().pop().unwrap();
    let wanted = "grant_type=refresh_token&client_id=c&client_secret=d&refresh_token=1%2F%2Fr";
    assert_eq!(std::str::from_utf8(&exchange.body).unwrap(), wanted);
}
