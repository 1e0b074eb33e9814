//! The answer corpus on the wire: each row is what a provider says to a real request, and the record of the attempt has its verdict.
//! And the requests of adapters that differ from their format: paths, queries and credentials as a provider sees them.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use rondo::core::api::Api;
use rondo::core::settlement::State;
use rondo::providers::adapter::Adapter;
use rondo::providers::answer::ResponseHead;
use rondo::providers::corpus::{self, Row};
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::registry;
use tokio::io::AsyncWriteExt;

use crate::support::client::{Connection, request, whole};
use crate::support::raw::{Request, Upstream};
use crate::support::{Rondo, soon};

/// A provider that gives the same answer until it is told another, and what it was asked last.
struct Provider {
    upstream: Upstream,
    says: Arc<Mutex<Vec<u8>>>,
    asked: Arc<Mutex<Option<Request>>>,
}

impl Provider {
    async fn start() -> Provider {
        let says: Arc<Mutex<Vec<u8>>> = Arc::default();
        let asked: Arc<Mutex<Option<Request>>> = Arc::default();
        let (answer, seen) = (Arc::clone(&says), Arc::clone(&asked));
        let upstream = Upstream::start(move |mut link| {
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
            async move {
                let Some(request) = link.request().await else {
                    return;
                };
                *seen.lock().unwrap() = Some(request);
                let answer = answer.lock().unwrap().clone();
                let _ = link.stream.write_all(&answer).await;
                let _ = link.stream.shutdown().await;
                link.closed().await;
            }
        })
        .await;
        Provider {
            upstream,
            says,
            asked,
        }
    }

    fn say(&self, row: &Row) {
        let mut head = format!("HTTP/1.1 {} Said\r\nconnection: close\r\n", row.status);
        for (name, value) in &row.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if row.headers.iter().all(|(name, _)| name != "content-length") {
            head.push_str(&format!("content-length: {}\r\n", row.body.len()));
        }
        *self.says.lock().unwrap() = [head.as_bytes(), b"\r\n", &row.body].concat();
    }

    fn asked(&self) -> Request {
        self.asked.lock().unwrap().take().unwrap()
    }
}

/// A provider and a route for each adapter; the route's models are named after it.
async fn gateway(provider: &Provider, settings: &dyn Fn(&Adapter) -> String) -> Rondo {
    let (mut providers, mut routes) = (String::new(), String::new());
    for adapter in registry::all() {
        let (name, more) = (adapter.name, settings(adapter));
        let url = format!("http://{}", provider.upstream.addr);
        providers.push_str(&format!(
            "  {name}: {{ adapter: {name}, base_url: \"{url}{more} }}\n"
        ));
        routes.push_str(&format!(
            "  - {{ name: {name}, models: [\"{name}/*\"], targets: [{{ name: only, provider: {name} }}], routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }} }} }}\n"
        ));
    }
    Rondo::start(&format!("providers:\n{providers}routes:\n{routes}")).await
}

/// The path and body of a client's request.
fn asking(adapter: &Adapter, api: Api, stream: bool) -> (String, String) {
    let model = format!("{}/m", adapter.name);
    let path = match api {
        Api::Gemini => {
            let verb = match stream {
                true => "streamGenerateContent",
                false => "generateContent",
            };
            let path = format!("/v1beta/models/{}:{verb}", model.replace('/', "%2F"));
            return (path, "{\"contents\":[]}".to_owned());
        }
        Api::OpenaiChat => "/v1/chat/completions",
        Api::OpenaiResponses => "/v1/responses",
        Api::AnthropicMessages => "/v1/messages",
        other => panic!("no row is about {other}"),
    };
    let body = format!("{{\"model\":\"{model}\",\"stream\":{stream}}}");
    (path.to_owned(), body)
}

/// Asks, and reads as much of the answer as there is.
async fn ask(rondo: &Rondo, path: &str, body: String) {
    let mut connection = Connection::h1(rondo.addr).await;
    let sent = soon(connection.send(request(path, &[], whole(body)))).await;
    if let Ok(answer) = sent {
        let _ = soon(answer.into_body().collect()).await;
    }
    rondo.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_fixtures_is_judged_so_on_the_wire() {
    // R-A1 R-A2 R-A3 R-A4
    let provider = Provider::start().await;
    let rondo = gateway(&provider, &|_| "\"".to_owned()).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let file = |name: &str| std::fs::read_to_string(format!("{folder}/{name}.jsonl")).unwrap();
    let text = file("responses") + &file("answers");
    let (mut judged, mut delivered) = (0, 0);
    // What comes after an upgrade is no answer to these requests.
    let lines = text.lines().filter(|line| !line.contains("\"status\":101"));
    for line in lines {
        let wanted: serde_json::Value = serde_json::from_str(line).unwrap();
        let row = corpus::read(line.as_bytes()).unwrap();
        let adapter = corpus::adapter_of(row.provider.as_deref().unwrap());
        let adapter = adapter.or(registry::find("openai_compatible")).unwrap();
        let mut traits = corpus::traits(adapter, None, &row);
        if !adapter.speaks.contains(traits.api) {
            traits.api = adapter.speaks.iter().next().unwrap();
        }
        let (path, body) = asking(adapter, traits.api, traits.stream);
        provider.say(&row);
        ask(&rondo, &path, body).await;
        let head = ResponseHead {
            status: row.status,
            headers: &row.headers,
        };
        let is_good = row.status < 300
            && peek(adapter, &traits, &head, &row.body, Rest::Ended) == Peek::Commit;
        let record = rondo.records().pop().unwrap();
        let [attempt] = record.attempts.as_slice() else {
            panic!("{line}: {record:?}");
        };
        if is_good {
            // What a committed stream becomes is the client's to see.
            assert_ne!(attempt.state, State::Rejected, "{line}");
            assert!(!attempt.certified, "{line}");
            delivered += 1;
            continue;
        }
        let class = attempt.class.map(|class| class.label());
        assert_eq!(class, wanted["class"].as_str(), "{line}\n{attempt:?}");
        assert_eq!(
            attempt.certified, wanted["certified_pre_execution"],
            "{line}\n{attempt:?}"
        );
        assert_eq!(
            attempt.retry_after_ms,
            wanted["retry_after_ms"].as_u64(),
            "{line}"
        );
        judged += 1;
    }
    assert_eq!(judged + delivered, 192 + 77);
    assert!(judged > 240, "{judged} judged, {delivered} delivered");
    rondo.assert_quiet().await;
}

/// A good answer to any of the formats' requests.
fn good() -> Row {
    corpus::read(
        br#"{"status":200,"headers":{"content-type":"application/json"},"body":"{\"id\":\"x\"}"}"#,
    )
    .unwrap()
}

/// The request line and the credentials that arrive when an adapter's provider is asked.
async fn arrives(name: &str, settings: &str, base: &str, api: Api) -> (String, Vec<String>) {
    let provider = Provider::start().await;
    provider.say(&good());
    let key = "keys: [{ name: main, secret: { literal: sk-own } }]";
    let rondo = gateway(&provider, &|adapter| match adapter.name == name {
        true => format!("{base}\", {key}{settings}"),
        false => "\"".to_owned(),
    })
    .await;
    let adapter = registry::find(name).unwrap();
    let (path, body) = asking(adapter, api, true);
    ask(&rondo, &format!("{path}?api-version=of-client&a=b"), body).await;
    let head = provider.asked().head;
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let names = [
        "authorization:",
        "api-key:",
        "x-api-key:",
        "x-goog-api-key:",
    ];
    let credentials = lines
        .map(str::to_lowercase)
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    (line, credentials.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_is_asked_where_and_how_it_wants() {
    // R-X2
    let chat = Api::OpenaiChat;
    let (line, credentials) = arrives("azure_openai", "", "", chat).await;
    assert_eq!(
        line,
        "POST /openai/v1/chat/completions?api-version=of-client&a=b HTTP/1.1"
    );
    assert_eq!(credentials, ["api-key: sk-own"]);
    let settings = ", deployments: true, api_version: \"2024-10-21\", auth: bearer";
    let (line, credentials) = arrives("azure_openai", settings, "/openai", chat).await;
    let path = "/openai/deployments/azure_openai%2Fm/chat/completions";
    assert_eq!(
        line,
        format!("POST {path}?a=b&api-version=2024-10-21 HTTP/1.1")
    );
    assert_eq!(credentials, ["authorization: bearer sk-own"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_clouds_are_asked_below_their_own_paths() {
    // R-X2
    let base = "/v1/projects/p/locations/l";
    let (line, credentials) = arrives("vertex", "", base, Api::Gemini).await;
    let path = "/publishers/google/models/vertex%2Fm:streamGenerateContent";
    assert_eq!(
        line,
        format!("POST {base}{path}?api-version=of-client&a=b HTTP/1.1")
    );
    assert_eq!(credentials, ["authorization: bearer sk-own"]);
    let (line, _) = arrives("bedrock", "", "", Api::OpenaiChat).await;
    assert!(
        line.starts_with("POST /openai/v1/chat/completions?"),
        "{line}"
    );
    let (line, _) = arrives("copilot", "", "", Api::OpenaiChat).await;
    assert!(line.starts_with("POST /chat/completions?"), "{line}");
}
