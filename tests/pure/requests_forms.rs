//! Forms: the model in its field, and forms that two servers could read differently.

use bytes::Bytes;
use rondo::core::api::Api;
use rondo::providers::binding::Binding;
use rondo::providers::envelope::{GatewayCode, GatewayError};
use rondo::providers::multipart::PARTS_MAX;
use rondo::providers::outbound::splice;
use rondo::providers::scan::{Scan, ScanError, read};

const TYPE: &str = "multipart/form-data; boundary=B";
const MODEL: &str = "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n";
const END: &str = "--B--\r\n";

fn scan_as(content_type: &str, body: impl AsRef<[u8]>) -> Result<Scan, ScanError> {
    let content_type = Some(content_type.as_bytes());
    read(Api::OpenaiTranscriptions, content_type, body.as_ref())
}

fn scan(body: impl AsRef<[u8]>) -> Result<Scan, ScanError> {
    scan_as(TYPE, body)
}

fn field(name: &str, value: &str) -> String {
    format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

/// A form of the model and one more field.
fn with(name: &str, value: &str) -> Scan {
    scan(format!("{}{MODEL}{END}", field(name, value))).unwrap()
}

fn spliced(body: &[u8], model: &str) -> Vec<u8> {
    let body = Bytes::copy_from_slice(body);
    let segments = splice(&body, &scan(&body).unwrap(), model);
    let len = segments.len();
    let sent = segments.into_iter().flatten().collect::<Vec<u8>>();
    assert_eq!(sent.len(), len);
    sent
}

/// What was refused, as the client reads it.
fn refused(body: impl AsRef<[u8]>) -> String {
    let body = body.as_ref();
    let Err(error) = scan(body) else {
        panic!("accepted: {}", String::from_utf8_lossy(body));
    };
    let answer = GatewayError::from(error);
    assert_eq!(answer.status(), 400);
    let shown = String::from_utf8_lossy(body);
    assert!(
        matches!(error, ScanError::NotForm { .. }),
        "{error}: {shown}"
    );
    answer.message().to_owned()
}

// R-X1
#[test]
fn the_model_is_found_behind_the_file() {
    let file = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\nContent-Type: audio/mpeg\r\n\r\n\r\n--\r\n--C\r\n\0\u{ff}model\r\n";
    let body = format!("{file}{MODEL}{END}");
    let found = scan(&body).unwrap();
    assert_eq!(found.model.as_deref(), Some("whisper-1"));
    let span = found.model_spans.iter().next().unwrap();
    assert_eq!(&body[span], "whisper-1");
    let sent = spliced(body.as_bytes(), "a-much-longer-name");
    let wanted = body.replace("whisper-1", "a-much-longer-name");
    assert_eq!(String::from_utf8(sent).unwrap(), wanted);
}

// R-X1
#[test]
fn forms_are_written_in_many_ways() {
    let bodies = [
        format!("{MODEL}{END}"),
        format!("a preamble\r\n{MODEL}{END}an epilogue\r\n"),
        format!("\r\n{MODEL}--B--"),
        format!("{MODEL}--B-- \t\n"),
        MODEL.replace("--B", "--B \t") + END,
        MODEL.to_uppercase().replace("WHISPER", "whisper").replace("NAME=\"MODEL", "NAME=\"model") + END,
        MODEL.replace("name=\"model\"", "name=model ;") + END,
        MODEL.replace("\r\n\r\n", "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n") + END,
        MODEL.replace("Content-D", "X:\r\ncontent-length: 9\r\nContent-D") + END,
    ];
    for body in &bodies {
        let found = scan(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert_eq!(found.model.as_deref(), Some("whisper-1"), "{body}");
        let sent = spliced(body.as_bytes(), "m");
        assert_eq!(sent, body.replace("whisper-1", "m").as_bytes());
    }
    let same = Bytes::from(format!("{MODEL}{END}"));
    let parts: Vec<_> = splice(&same, &scan(&same).unwrap(), "whisper-1")
        .into_iter()
        .collect();
    assert_eq!(parts, [same]);
}

#[test]
fn the_content_type_names_the_boundary() {
    let body = format!("{MODEL}{END}");
    for good in [
        "multipart/form-data;boundary=B",
        "Multipart/Form-Data ; charset=\"u;tf\" ; BOUNDARY=\"B\";",
        "multipart/form-data; x=y; boundary=B; z=\"\\\"\"",
    ] {
        assert!(scan_as(good, &body).is_ok(), "{good}");
    }
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    let padded = format!("{TYPE}; x={}", "y".repeat(1024));
    for bad in [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"B",
        "multipart/form-data; boundary=\"B \"",
        "multipart/form-data; boundary=\"B\\B\"",
        "multipart/form-data; boundary=B; boundary=B",
        "multipart/form-data; boundary=B; Boundary=C",
        "multipart/form-data; boundary=B; boundary*=C",
        "multipart/form-data; boundary*0=B",
        "multipart/form-data; boundary=B x",
        "multipart/form-data, boundary=B",
        "multipart/mixed; boundary=B",
        "xmultipart/form-data; boundary=B",
        &long,
        &padded,
    ] {
        assert_eq!(scan_as(bad, &body), Err(ScanError::NoBoundary), "{bad}");
    }
    let none = read(Api::OpenaiImageEdits, None, body.as_bytes());
    assert_eq!(none, Err(ScanError::NoBoundary));
    let quoted = body.replace("--B", "--a b:(c)");
    let found = scan_as("multipart/form-data; boundary=\"a b:(c)\"", &quoted).unwrap();
    assert_eq!(found.model.as_deref(), Some("whisper-1"));
}

#[test]
fn a_form_that_names_no_model_is_a_400() {
    assert_eq!(scan("--B--"), Err(ScanError::NoModel));
    assert_eq!(scan(field("Model", "m") + END), Err(ScanError::NoModel));
    assert_eq!(scan(field("model[]", "m") + END), Err(ScanError::NoModel));
    assert_eq!(scan(field("model", "") + END), Err(ScanError::NoModel));
    let invalid = Err(ScanError::ModelInvalid);
    assert_eq!(scan(field("model", "a\r\nb") + END), invalid);
    assert_eq!(scan(field("model", &"m".repeat(1025)) + END), invalid);
    let body = MODEL.replace("whisper-1", "\u{1}") + END;
    assert_eq!(scan(body), invalid);
    let body = [
        MODEL.split("whisper").next().unwrap().as_bytes(),
        b"\xff\r\n--B--",
    ]
    .concat();
    assert_eq!(scan(body), invalid);
    let not_text = Err(ScanError::ModelNotString);
    let body = MODEL.replace("\"model\"", "\"model\"; filename=\"m\"") + END;
    assert_eq!(scan(body), not_text);
    let body = MODEL.replace("\r\n\r\n", "\r\nContent-Transfer-Encoding: base64\r\n\r\n") + END;
    assert_eq!(scan(body), not_text);
    let code = |error| GatewayError::from(error).code();
    assert_eq!(code(ScanError::NoModel), GatewayCode::ModelMissing);
    assert_eq!(code(ScanError::NoBoundary), GatewayCode::InvalidRequest);
}

// R-X1
#[test]
fn every_field_that_names_the_model_is_rewritten() {
    let two = field("model", "a") + &field("x", "model") + &field("model", "b") + END;
    assert_eq!(scan(&two).unwrap().model.as_deref(), Some("b"));
    let sent = String::from_utf8(spliced(two.as_bytes(), "b")).unwrap();
    assert_eq!(
        sent,
        field("model", "b") + &field("x", "model") + &field("model", "b") + END
    );
    let five = field("model", "a").repeat(5) + END;
    assert_eq!(scan(five), Err(ScanError::TooManyModels));
}

/// Parsers of providers differ in how they take these. A part that only one of them sees could name another model.
#[test]
fn what_servers_could_read_differently_is_refused() {
    let inside = |text: &str| {
        let file = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
        refused(format!("{file}{text}\r\n{MODEL}{END}"))
    };
    let smuggled = "--B\nContent-Disposition: form-data; name=\"model\"\n\nother";
    for text in [
        format!("x\n{smuggled}"),
        format!("x\r{smuggled}"),
        "x\r\n--B".to_owned(),
        "x\r\n--Bx\r\n".to_owned(),
        "x\r\n--B--x".to_owned(),
        "x\r\n--B\n".to_owned(),
        "x\r\n--B\r\rx".to_owned(),
    ] {
        inside(&text);
    }
    let header = |from: &str, to: &str| {
        let body = MODEL.replace(from, to) + END;
        assert_ne!(body, format!("{MODEL}{END}"));
        refused(body)
    };
    for disposition in [
        "form-data",
        "attachment; name=\"model\"",
        "form-data; name=\"model\"; name=\"x\"",
        "form-data; name=\"model\"; NAME=x",
        "form-data; name=\"model\"; name*=utf-8''x",
        "form-data; name*0=mo; name*1=del",
        "form-data; name=\"mo\\del\"",
        "form-data; name=\"model",
        "form-data; name=\"model\" x",
        "form-data; name =\"model\"",
        "form-data name=\"model\"",
        "form-data; name=",
        "form-data; name=\"x\"; filename=\"\\\"; name=model; y=\\\"\"",
        "form-data; name=\"mo\tdel\0\"",
    ] {
        header("form-data; name=\"model\"", disposition);
    }
    header("-Disposition:", "-Disposition :");
    header("Content-Disposition: ", "Content-Disposition:\r\n ");
    header("\r\n\r\n", "\n\n");
    header("\r\n\r\n", "\r\n\n");
    header(
        "\r\n\r\n",
        "\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n",
    );
    header("\r\n\r\n", &("\r\nA: b".repeat(15) + "\r\n\r\n"));
    header("\r\n\r\n", &format!("\r\nA: {}\r\n\r\n", "b".repeat(8192)));
    header("Content-Disposition: form-data; name=\"model\"\r\n", "");
    refused(format!("{MODEL}{END}{MODEL}{END}"));
    refused(format!("{MODEL}{END}\n--B"));
    refused(format!("preamble\n{MODEL}{END}"));
    let message = refused(MODEL);
    let says =
        "rondo: the body is not valid multipart/form-data: the last part does not end at byte ";
    assert_eq!(message, format!("{says}{}", MODEL.len()));
}

#[test]
fn a_quote_in_the_name_of_a_file_is_no_reason_to_refuse() {
    for name in ["a\\\"b.mp3", "C:\\\\a.mp3", "a%22b;c.mp3", "é;.mp3"] {
        let file = format!(
            "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nx\r\n"
        );
        assert!(scan(file + MODEL + END).is_ok(), "{name}");
    }
}

#[test]
fn parts_are_bounded() {
    let fields = |count| field("x", "").repeat(count) + MODEL + END;
    assert!(scan(fields(PARTS_MAX - 2)).is_ok());
    assert!(refused(fields(PARTS_MAX)).contains("too many parts"));
    // A part may be nothing but its header.
    let bare = "--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n";
    assert!(scan(format!("{bare}{MODEL}{END}")).is_ok());
    assert_eq!(
        scan(bare.replace("\"x\"", "\"model\"") + END),
        Err(ScanError::NoModel)
    );
}

#[test]
fn a_stream_is_asked_for_in_words() {
    for (value, wanted) in [("true", true), ("True", true), ("1", true), ("on", true)] {
        assert_eq!(with("stream", value).stream, wanted);
    }
    for value in ["false", "0", "", "truest", "null"] {
        assert!(!with("stream", value).stream, "{value}");
    }
    let file = MODEL.replace("\"model\"", "\"stream\"; filename*=utf-8''x");
    assert!(
        !scan(file.replace("whisper-1", "true") + MODEL + END)
            .unwrap()
            .stream
    );
    let file = field("stream", "true").replace("\"stream\"", "\"stream\"; filename=x");
    assert!(!scan(file + MODEL + END).unwrap().stream);
}

// R-S7, R-F8
#[test]
fn fields_bind_as_members_of_json_do() {
    let bound = |name, value| with(name, value).binding;
    for (name, binding) in [
        ("file_id", Binding::File),
        ("file_ids[]", Binding::File),
        ("image[0][file_id]", Binding::File),
        ("image.file_id", Binding::File),
        ("voice[id]", Binding::Id),
        ("previous_response_id", Binding::Response),
        ("container", Binding::Container),
    ] {
        assert_eq!(bound(name, "x1"), Some(binding), "{name}");
        assert_eq!(bound(name, " "), None, "{name}");
        assert_eq!(bound(name, "null"), None, "{name}");
    }
    for name in [
        "user",
        "prompt",
        "language",
        "metadata[file_id]",
        "timestamp_granularities[]",
        "user_id",
    ] {
        assert_eq!(bound(name, "x1"), None, "{name}");
    }
    let tuned = MODEL.replace("whisper-1", "ft:whisper-1:me") + END;
    assert_eq!(scan(tuned).unwrap().binding, Some(Binding::Model));
    let file = field("file_id", "x").replace("\"file_id\"", "\"file_id\"; filename=x");
    assert_eq!(scan(file + MODEL + END).unwrap().binding, None);
}

// R-A5
#[test]
fn making_an_image_is_the_operation_itself() {
    assert!(!with("background", "transparent").side_effects);
    let images = |body: &str| read(Api::OpenaiImages, None, body.as_bytes()).unwrap();
    let found = images(r#"{"model":"gpt-image-1","prompt":"a","background":"transparent","n":2}"#);
    assert!(!found.side_effects && found.binding.is_none());
    let found = images(r#"{"model":"m","prompt":"a","tools":[{"type":"web_search"}]}"#);
    assert!(found.side_effects);
    let speech = br#"{"model":"tts-1","input":"hi","voice":"alloy"}"#;
    let found = read(Api::OpenaiSpeech, None, speech).unwrap();
    assert!(!found.side_effects && found.binding.is_none());
    let speech = br#"{"model":"tts-1","input":"hi","voice":{"id":"voice_1"}}"#;
    let found = read(Api::OpenaiSpeech, None, speech).unwrap();
    assert_eq!(found.binding, Some(Binding::Id));
}

// R-S7
#[test]
fn ranked_documents_are_the_users_own() {
    let body = br#"{"model":"m","query":{"text":"q","image_id":"1"},"documents":[{"text":"a","doc_id":"7","signature":"x"}],"top_n":1}"#;
    assert_eq!(read(Api::Rerank, None, body).unwrap().binding, None);
    let body = br#"{"model":"m","query":"q","file_id":"7"}"#;
    assert_eq!(
        read(Api::Rerank, None, body).unwrap().binding,
        Some(Binding::File)
    );
}
