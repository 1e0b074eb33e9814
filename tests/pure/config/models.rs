//! Names of models that a file may give to targets.

use super::{FakeEnv, compile_in};

fn compiled(model: &str) -> Result<(), String> {
    let text = format!(
        "\
providers:
  a: {{ adapter: openai, keys: [{{ name: k, secret: {{ env: KEY_A }} }}] }}
routes: [{{ name: r, models: [\"*\"], targets: [{{ name: t, provider: a, model: {model} }}] }}]
"
    );
    let loaded = compile_in(&text, &FakeEnv::usual());
    loaded.map(drop).map_err(|problems| problems.to_string())
}

#[test]
fn a_name_that_could_end_a_field_of_a_form_is_refused() {
    // R-X1 R-C1
    let cases = [
        "\"--boundary\"",
        "\"--\"",
        "'a\"b'",
        "\"a\\r\\n--b\"",
        "\"a\\nb\"",
    ];
    for model in cases {
        let found = compiled(model).unwrap_err();
        assert!(found.contains("targets[0].model: not usable"), "{found}");
        assert!(found.contains("could end a field of a form"), "{found}");
    }
    for model in ["\"a\\tb\"", "\"a\\u0007\"", "\"\""] {
        let found = compiled(model).unwrap_err();
        assert!(
            found.contains("targets[0].model: not usable; needed is"),
            "{found}"
        );
    }
    for model in ["a--b", "-a", "a'b", "\"us.x-v1:0\"", "a/b@1"] {
        assert_eq!(compiled(model), Ok(()), "{model}");
    }
}
