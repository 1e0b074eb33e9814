//! Answers that are no text, and the adapters that give them.

use rondo::core::api::{Api, ApiSet};
use rondo::core::class::Class;
use rondo::providers::answer::{RequestTraits, ResponseHead};
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::stream::StreamWatch;

use crate::providers_support::{SSE, adapter};

fn look(api: Api, media: &str, body: &[u8], rest: Rest) -> Peek {
    let headers = [("content-type", media)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api,
        stream: false,
        side_effects: false,
    };
    peek(adapter("openai_compatible"), &traits, &head, body, rest)
}

#[test]
fn bytes_commit_with_the_first_of_them() {
    // R-A4
    let audio = [
        "audio/mpeg",
        "audio/wav; rate=1",
        "application/octet-stream",
    ];
    for media in audio.into_iter().chain(["image/png", "VIDEO/mp4"]) {
        for body in [&b"\xff\xfb"[..], b"\n", b" ", b"\0", b"{\"error\":"] {
            assert_eq!(
                look(Api::OpenaiSpeech, media, body, Rest::Open),
                Peek::Commit
            );
        }
        assert_eq!(
            look(Api::OpenaiSpeech, media, b"", Rest::Open),
            Peek::NeedMore
        );
        let ended = look(Api::OpenaiSpeech, media, b"", Rest::Ended);
        assert!(matches!(ended, Peek::Error(_)), "{media}");
    }
    // JSON is still looked into.
    let json = look(Api::OpenaiSpeech, "application/json", b"\n", Rest::Open);
    assert_eq!(json, Peek::NeedMore);
    let error = br#"{"error":{"message":"m"}}"#;
    let error = look(Api::OpenaiImages, "application/json", error, Rest::Ended);
    assert!(matches!(error, Peek::Error(_)));
}

#[test]
fn the_transcript_of_silence_is_empty() {
    // R-A4
    for api in [Api::OpenaiTranscriptions, Api::OpenaiTranslations] {
        for media in [
            "text/plain; charset=utf-8",
            "text/vtt",
            "application/x-subrip",
        ] {
            assert_eq!(look(api, media, b"\n", Rest::Open), Peek::Commit);
            assert_eq!(look(api, media, b"", Rest::Open), Peek::NeedMore);
            assert_eq!(look(api, media, b"", Rest::Ended), Peek::Commit);
        }
        for media in ["application/json", "text/html"] {
            let ended = look(api, media, b"\n", Rest::Ended);
            assert!(matches!(ended, Peek::Error(_)), "{media}");
        }
    }
    let chat = look(Api::OpenaiChat, "text/plain", b"\n", Rest::Ended);
    assert!(matches!(chat, Peek::Error(_)));
}

#[test]
fn streams_of_media_commit_with_their_first_event() {
    // R-A4
    let follow = |api, text: &str| {
        let headers = vec![SSE];
        let head = ResponseHead {
            status: 200,
            headers: &headers,
        };
        let traits = RequestTraits {
            api,
            stream: true,
            side_effects: false,
        };
        let mut watch = StreamWatch::new(adapter("openai"), traits, &head);
        watch.feed(text.as_bytes());
        (
            peek(
                adapter("openai"),
                &traits,
                &head,
                text.as_bytes(),
                Rest::Open,
            ),
            watch.ended_as(),
        )
    };
    let cases = [
        (
            Api::OpenaiTranscriptions,
            "transcript.text.delta",
            "transcript.text.done",
        ),
        (Api::OpenaiSpeech, "speech.audio.delta", "speech.audio.done"),
        (
            Api::OpenaiImages,
            "image_generation.partial_image",
            "image_generation.completed",
        ),
        (
            Api::OpenaiImageEdits,
            "image_edit.partial_image",
            "image_edit.completed",
        ),
    ];
    for (api, delta, done) in cases {
        let delta = format!("data: {{\"type\":\"{delta}\"}}\n\n");
        assert_eq!(follow(api, &delta), (Peek::Commit, Class::Ambiguous));
        let done = format!("{delta}data: {{\"type\":\"{done}\"}}\n\n");
        assert_eq!(follow(api, &done), (Peek::Commit, Class::OkStream));
        let alive = "data: {\"type\":\"keepalive\"}\n\n";
        assert_eq!(follow(api, alive).0, Peek::NeedMore);
        let error = "data: {\"type\":\"error\",\"error\":{\"message\":\"m\",\"type\":\"server_error\"}}\n\n";
        assert!(matches!(follow(api, error).0, Peek::Error(_)));
    }
}

#[test]
fn adapters_offer_what_their_providers_do() {
    const FORMS: ApiSet = ApiSet::of(&[
        Api::OpenaiImageEdits,
        Api::OpenaiImageVariations,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
    ]);
    assert!(
        Api::ALL
            .iter()
            .all(|api| api.is_form() == FORMS.contains(*api))
    );
    let special = |name: &str| {
        let speaks = adapter(name).speaks.iter();
        let labels = speaks.filter(|api| api.is_specialised()).map(Api::label);
        labels.collect::<Vec<_>>().join(" ")
    };
    let openai = "openai_moderations openai_images openai_image_edits openai_image_variations openai_speech openai_transcriptions openai_translations";
    const SOCKET: &str = "openai_realtime";
    assert_eq!(special("openai"), format!("{openai} {SOCKET}"));
    assert_eq!(
        special("openai_compatible"),
        format!("{openai} rerank {SOCKET}")
    );
    assert_eq!(
        special("azure_openai"),
        "openai_images openai_image_edits openai_speech openai_transcriptions openai_translations openai_realtime"
    );
    assert_eq!(
        special("groq"),
        "openai_speech openai_transcriptions openai_translations"
    );
    assert_eq!(
        special("mistral"),
        "openai_moderations openai_transcriptions"
    );
    assert_eq!(
        special("vllm"),
        "openai_transcriptions openai_translations rerank"
    );
    assert_eq!(special("sglang"), "openai_transcriptions rerank");
    assert_eq!(
        special("together"),
        "openai_images openai_speech openai_transcriptions openai_translations rerank"
    );
    assert_eq!(special("xai"), "openai_images");
    for rerank in ["llama_cpp", "fireworks", "cohere"] {
        assert_eq!(special(rerank), "rerank", "{rerank}");
    }
    for none in [
        "anthropic",
        "anthropic_compatible",
        "gemini",
        "deepseek",
        "openrouter",
        "tgi",
        "ollama",
        "vertex",
        "bedrock",
        "copilot",
        "nvidia_nim",
    ] {
        assert_eq!(special(none), "", "{none}");
    }
}
