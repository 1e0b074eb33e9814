//! What only Copilot has: a token that is exchanged, and headers that name the caller.

use rondo::config::effective;
use rondo::policy::identity::{Grant, Identity};
use serde_json::json;

use super::{errors, snapshot};

fn file(settings: &str) -> String {
    format!(
        "\
providers:
  a: {{ {settings} }}
routes: [{{ name: gpt, models: [\"*\"], targets: [{{ name: only, provider: a }}] }}]
"
    )
}

#[test]
fn a_token_is_exchanged_and_keys_are_not() {
    // R-C1
    let loaded = snapshot(&file(
        "adapter: copilot, copilot: { token: { env: KEY_A } }",
    ));
    let Identity::Exchanged(exchange) = &loaded.providers[0].identity else {
        panic!("not exchanged")
    };
    let endpoint = (&*exchange.endpoint.host, &*exchange.endpoint.path);
    assert_eq!(endpoint, ("api.github.com", "/copilot_internal/v2/token"));
    assert!(
        matches!(&exchange.grant, Grant::Copilot { token, .. } if token.expose() == "sk-secret-of-a")
    );
    let view = effective(&loaded);
    let url = "https://api.github.com/copilot_internal/v2/token";
    assert_eq!(
        view["providers"]["a"]["copilot"],
        json!({ "token": "[redacted]", "token_url": url })
    );
    let keys = "adapter: copilot, keys: [{ name: k, secret: { env: KEY_A } }], copilot: { integration_id: mine }";
    let loaded = snapshot(&file(keys));
    assert_eq!(loaded.providers[0].identity, Identity::Keys);
    let headers = json!({
        "editor-version": concat!("rondo/", env!("CARGO_PKG_VERSION")), "copilot-integration-id": "mine",
        "openai-intent": "conversation-panel", "x-github-api-version": "2025-05-01",
    });
    assert_eq!(effective(&loaded)["providers"]["a"]["headers"], headers);
    assert!(
        snapshot(&file("adapter: openai")).providers[0]
            .own_headers
            .is_empty()
    );
}

#[test]
fn what_cannot_work_is_refused() {
    // R-C1
    let token = "token: { env: KEY_A }";
    let cases = [
        (
            format!(
                "adapter: copilot, keys: [{{ name: k, secret: {{ env: KEY_B }} }}], copilot: {{ {token} }}"
            ),
            "remove them or this one",
        ),
        (
            format!(
                "adapter: copilot, copilot: {{ {token}, token_url: \"http://example.com/t\" }}"
            ),
            "copilot.token_url: not https",
        ),
        (
            format!("adapter: copilot, copilot: {{ {token}, editor_version: \"a b\" }}"),
            "copilot.editor_version: not usable in a header",
        ),
        (
            "adapter: copilot, copilot: { intent: \"a\\nb\" }".to_owned(),
            "copilot.intent: not usable in a header",
        ),
        (
            "adapter: copilot, copilot: { integration_id: \"\u{e9}\" }".to_owned(),
            "copilot.integration_id: not usable in a header",
        ),
        (
            format!("adapter: openai, copilot: {{ {token} }}"),
            "copilot: only adapter copilot has this; openai has not",
        ),
    ];
    for (settings, wanted) in cases {
        let found = errors(&file(&settings)).join("\n");
        assert!(found.contains(wanted), "{found}");
        assert!(!found.contains("sk-secret"), "{found}");
    }
}
