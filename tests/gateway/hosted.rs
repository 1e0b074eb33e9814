//! Anthropic's messages at Bedrock: whole answers in their own format, signed; streams go to a target that has them.

use crate::clouds::{answer, assert_signed, runtime, signing};
use crate::support::Rondo;
use crate::support::client::{call, post, request, whole};

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_anthropic_are_asked_whole_and_streams_go_elsewhere() {
    // R-X1
    let good = br#"{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}"#;
    let (upstream, asked) = runtime(answer("application/json", good)).await;
    let yaml = signing(&upstream).replace("adapter: bedrock, mock", "adapter: anthropic, mock");
    let rondo = Rondo::start(&yaml).await;
    let sent =
        |more: &str| format!(r#"{{ "model":"claude",{more} "max_tokens":1e1, "messages":[]}}"#);
    let betas = [
        ("anthropic-beta", "a-1"),
        ("anthropic-version", "2023-06-01"),
    ];
    let path = "/v1/messages?beta=true";
    for more in ["", r#""stream":false,"#] {
        let found = call(rondo.addr, request(path, &betas, whole(sent(more)))).await;
        assert_eq!(found.header("x-rondo-target"), Some("first"), "{found:?}");
        assert_eq!(found.body, good.as_slice());
        let request = asked.lock().unwrap().pop().unwrap();
        let target = "POST /model/us.anthropic.claude-v1%3A0/invoke HTTP/1.1\r\n";
        assert!(request.head.starts_with(target), "{request:?}");
        let wanted = r#"{ "anthropic_version":"bedrock-2023-05-31","anthropic_beta":["a-1"], "max_tokens":1e1, "messages":[]}"#;
        assert_eq!(std::str::from_utf8(&request.body).unwrap(), wanted);
        assert_signed(&request);
    }
    let found = call(rondo.addr, post(path, sent(r#""stream":true,"#))).await;
    assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
    assert_eq!(upstream.requests(), 2);
    let counts = post("/model/claude/count-tokens", r#"{"input":{}}"#);
    assert_eq!(call(rondo.addr, counts).await.status, 200);
    let request = asked.lock().unwrap().pop().unwrap();
    let target = "POST /model/us.anthropic.claude-v1%3A0/count-tokens HTTP/1.1\r\n";
    assert!(request.head.starts_with(target), "{request:?}");
    assert_signed(&request);
    rondo.assert_quiet().await;
}
