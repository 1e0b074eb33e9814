//! The keys that only Azure OpenAI has.

use rondo::config::effective;
use rondo::policy::provider::Azure;
use serde_json::json;

use super::{errors, snapshot};

fn file(provider: &str) -> String {
    format!(
        "\
providers:
  a: {{ {provider} }}
routes: [{{ name: gpt, models: [\"*\"], targets: [{{ name: only, provider: a }}] }}]
"
    )
}

fn azure(settings: &str) -> Azure {
    let text = file(&format!(
        "adapter: azure_openai, base_url: \"https://r.openai.azure.com\"{settings}"
    ));
    snapshot(&text).providers[0].azure.clone()
}

#[test]
fn the_current_form_is_the_default() {
    // R-C1
    assert_eq!(azure(""), Azure::default());
    let classic = Azure {
        deployments: true,
        api_version: Some("2024-10-21".into()),
        bearer: false,
    };
    assert_eq!(
        azure(", deployments: true, api_version: \"2024-10-21\""),
        classic
    );
    assert!(azure(", auth: bearer").bearer);
    assert!(!azure(", auth: api_key").bearer);
    assert_eq!(
        azure(", api_version: preview").api_version.as_deref(),
        Some("preview")
    );
}

#[test]
fn what_cannot_work_is_refused() {
    // R-C1
    let url = "base_url: \"https://r.openai.azure.com\"";
    let found = errors(&file(&format!(
        "adapter: azure_openai, {url}, deployments: true"
    )));
    assert_eq!(
        found,
        [
            "rondo.yaml:2:84: providers.a.deployments: a deployment in the path needs `api_version`, e.g. 2024-10-21"
        ]
    );
    let found = errors(&file(
        "adapter: openai, deployments: false, api_version: x, auth: bearer",
    ));
    assert_eq!(found.len(), 3, "{found:?}");
    for line in &found {
        assert!(
            line.ends_with("only adapter azure_openai has this; openai has not"),
            "{line}"
        );
    }
    let found = errors(&file(&format!("adapter: azure_openai, {url}, auth: token")));
    assert!(found[0].contains("one of api_key, bearer"), "{found:?}");
    let found = errors(&file(&format!(
        "adapter: azure_openai, {url}, api_version: \"a&b=c\""
    )));
    assert!(found[0].contains("api_version: not usable"), "{found:?}");
}

#[test]
fn the_effective_configuration_shows_them_where_they_count() {
    let text =
        file("adapter: azure_openai, base_url: \"https://r.openai.azure.com\", auth: bearer");
    let view = effective(&snapshot(&text));
    let provider = &view["providers"]["a"];
    assert_eq!(provider["deployments"], json!(false));
    assert_eq!(provider["api_version"], json!(null));
    assert_eq!(provider["auth"], json!("bearer"));
    let view = effective(&snapshot(&file("adapter: openai")));
    assert!(view["providers"]["a"].get("auth").is_none());
}
