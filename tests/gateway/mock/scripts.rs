//! Scripts that are refused, and files of several servers.

use rondo::mock::Script;

/// The script must be refused at this line, with these words.
fn refused(text: &str, line: Option<usize>, words: &str) {
    let error = Script::parse(text).expect_err(text);
    assert!(error.message.contains(words), "{text}\n{error}");
    assert_eq!(
        error.position.map(|(line, _)| line),
        line,
        "{text}\n{error}"
    );
}

#[test]
fn mistakes_are_refused_with_their_place() {
    refused("seed: 1\nanswer: [ok]", Some(2), "unknown field `answer`");
    // A duplicate key is reported at the beginning of its mapping.
    refused("seed: 1\nseed: 2", Some(1), "duplicate field `seed`");
    refused(
        "answers:\n  - ok\n  - nope",
        Some(3),
        "unknown preset `nope`",
    );
    refused(
        "answers:\n  - {preset: nope}",
        Some(2),
        "unknown preset `nope`",
    );
    refused(
        "answers:\n  - {preset: ok, statsu: 5}",
        Some(2),
        "unknown field `statsu`",
    );
    refused("answers:\n  - 5", Some(2), "the name of a preset");
    refused("answers:\n  - {delay_ms: 5}", Some(2), "an answer needs");
    refused(
        "answers:\n  - {preset: hang, status: 5}",
        Some(2),
        "nothing is sent here",
    );
    refused(
        "answers:\n  - {preset: ok, silence: true}",
        Some(2),
        "only one of",
    );
    refused("answers:\n  - {status: 99}", Some(2), "200 to 999");
    refused(
        "answers:\n  - {body: a, sse: []}",
        Some(2),
        "only one of `body` and `sse`",
    );
    refused(
        "answers:\n  - {body: x, text: a}",
        Some(2),
        "belong to `ok`",
    );
    refused(
        "answers:\n  - {status: 200, headers: {'a b': c}}",
        Some(2),
        "not the name of a header",
    );
    refused(
        "answers:\n  - {status: 200, headers: {a: b, a: c}}",
        Some(2),
        "duplicate key `a`",
    );
    refused(
        "answers:\n  - {choose: [{p: 0.5, answer: ok}]}",
        Some(2),
        "add up to 0.5",
    );
    refused(
        "answers:\n  - {choose: [{p: 1, answer: {preset: ok, times: 2}}]}",
        Some(2),
        "`times`",
    );
    refused(
        "windows:\n  - {from_ms: 5, to_ms: 5, answer: ok}",
        Some(2),
        "above `from_ms`",
    );
    refused(
        "answers:\n  - {sse: [{gap_ms: 5}]}",
        Some(2),
        "an event needs",
    );
    refused("servers: {a: {}}", None, "only in a file");
}

#[test]
fn a_file_names_its_servers() {
    let servers =
        Script::parse_file("servers: {a: {answers: [hang]}, b: {listen: 'x:1'}}").unwrap();
    let names: Vec<_> = servers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(servers[1].1.listen.as_deref(), Some("x:1"));
    let single = Script::parse_file("answers: [hang]").unwrap();
    assert_eq!(single[0].0, "mock");
    let error = Script::parse_file("seed: 1\nservers: {a: {}}").unwrap_err();
    assert!(error.message.contains("no other key"));
}

#[tokio::test]
async fn the_example_file_serves() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/mock.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let ports = (1..=5).map(|number| format!("127.0.0.1:1908{number}"));
    let any_port = ports.fold(text.clone(), |text, port| {
        text.replace(&port, "127.0.0.1:0")
    });
    let servers = rondo::mock::start_all(&any_port).await.unwrap();
    assert_eq!(servers.len(), Script::parse_file(&text).unwrap().len());
    for server in servers {
        assert_ne!(server.addr().port(), 0);
        server.stop().await;
    }
}
