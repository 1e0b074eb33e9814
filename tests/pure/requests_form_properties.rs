//! Properties of forms: made ones are read and spliced exactly, broken ones are refused, and no bytes make the reader panic.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::providers::multipart::scan;
use rondo::providers::outbound::splice;

#[derive(Debug, Clone)]
struct Field {
    name: String,
    file: Option<String>,
    value: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Form {
    boundary: String,
    fields: Vec<Field>,
    model_at: usize,
    model: String,
    preamble: bool,
    epilogue: bool,
}

impl Form {
    fn content_type(&self) -> String {
        format!("multipart/form-data; boundary=\"{}\"", self.boundary)
    }

    /// The form with this model. The first part of the result ends where the model begins, the second begins behind it.
    fn write(&self, model: &str) -> (Vec<u8>, usize) {
        let mut body = Vec::new();
        let mut at = 0;
        if self.preamble {
            body.extend_from_slice(b"This is a form.\r\n");
        }
        for (index, field) in self.fields.iter().enumerate() {
            if index == self.model_at {
                self.open(&mut body, "model", None);
                at = body.len();
                body.extend_from_slice(model.as_bytes());
                body.extend_from_slice(b"\r\n");
            }
            self.open(&mut body, &field.name, field.file.as_deref());
            body.extend_from_slice(&field.value);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        if self.epilogue {
            body.extend_from_slice(b"It ends.");
        }
        (body, at)
    }

    fn open(&self, body: &mut Vec<u8>, name: &str, file: Option<&str>) {
        let line = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{name}\"",
            self.boundary
        );
        body.extend_from_slice(line.as_bytes());
        if let Some(file) = file {
            let line = format!("; filename=\"{file}\"\r\nContent-Type: audio/mpeg");
            body.extend_from_slice(line.as_bytes());
        }
        body.extend_from_slice(b"\r\n\r\n");
    }
}

/// Bytes as files have them, and bytes that look like parts of a form.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let looks_like = vec(
        prop::sample::select(vec![
            "\r\n",
            "--",
            "-",
            "\n",
            "\r",
            "name=\"model\"",
            "Content-Disposition: form-data;",
            " ",
            "x",
            "\0",
        ]),
        0..12,
    );
    prop_oneof![
        vec(any::<u8>(), 0..300),
        looks_like.prop_map(|texts| texts.concat().into_bytes()),
    ]
}

prop_compose! {
    fn field()(
        name in "[a-zA-Z_\\[\\]]{1,12}",
        file in proptest::option::of("[^\\p{Cc}\"\\\\]{0,12}"),
        value in value(),
    ) -> Field {
        let name = if name == "model" || name == "stream" { "file".to_owned() } else { name };
        Field { name, file, value }
    }
}

prop_compose! {
    fn form()(
        boundary in "[A-Za-z0-9'()+_,./:=?-]{8,70}",
        fields in vec(field(), 1..6),
        at in any::<prop::sample::Index>(),
        model in "[^\\p{Cc}-][^\\p{Cc}]{0,20}",
        preamble: bool,
        epilogue: bool,
    ) -> Form {
        let model_at = at.index(fields.len());
        Form { boundary, fields, model_at, model, preamble, epilogue }
    }
}

fn api() -> impl Strategy<Value = Api> {
    let forms = Api::ALL.into_iter().filter(|api| api.is_form());
    prop::sample::select(forms.collect::<Vec<_>>())
}

/// A boundary inside of a value is the sender's mistake; such a draw says nothing.
fn is_sound(form: &Form) -> bool {
    let delimiter = format!("--{}", form.boundary);
    let has = |bytes: &[u8]| memchr::memmem::find(bytes, delimiter.as_bytes()).is_some();
    !form.fields.iter().any(|field| has(&field.value))
}

proptest! {
    // R-X1
    #[test]
    fn the_model_is_found_and_nothing_else_is_changed(api in api(), form in form(), target in "[^\\p{Cc} -][^\\p{Cc} ]{0,20}") {
        prop_assume!(is_sound(&form));
        let (body, at) = form.write(&form.model);
        let body = Bytes::from(body);
        let found = scan(api, Some(form.content_type().as_bytes()), &body).unwrap();
        prop_assert_eq!(found.model.as_deref(), Some(form.model.as_str()));
        let spans: Vec<_> = found.model_spans.iter().collect();
        prop_assert_eq!(spans, vec![at..at + form.model.len()]);
        let segments = splice(&body, &found, &target);
        let sent: Vec<u8> = segments.iter().flat_map(|part| part.to_vec()).collect();
        prop_assert_eq!(segments.len(), sent.len());
        prop_assert_eq!(&sent, &form.write(&target).0);
        let again = scan(api, Some(form.content_type().as_bytes()), &sent).unwrap();
        prop_assert_eq!(again.model.as_deref(), Some(target.as_str()));
        prop_assert_eq!((again.binding, again.stream), (found.binding, found.stream));
    }

    #[test]
    fn a_truncated_form_is_never_served(form in form(), at: prop::sample::Index) {
        prop_assume!(is_sound(&form));
        let (body, _) = form.write(&form.model);
        let close = format!("--{}--", form.boundary);
        let end = memchr::memmem::rfind(&body, close.as_bytes()).unwrap() + close.len();
        let cut = &body[..at.index(end)];
        prop_assert!(scan(Api::OpenaiTranscriptions, Some(form.content_type().as_bytes()), cut).is_err());
    }

    #[test]
    fn one_changed_byte_never_panics(form in form(), at: prop::sample::Index, byte: u8) {
        let (mut body, _) = form.write(&form.model);
        let at = at.index(body.len());
        body[at] = byte;
        check_any(form.content_type().as_bytes(), &body)?;
    }

    #[test]
    fn bytes_never_panic(content_type in vec(any::<u8>(), 0..80), body in vec(any::<u8>(), 0..200)) {
        check_any(&content_type, &body)?;
        check_any(b"multipart/form-data; boundary=-", &body)?;
    }

    #[test]
    fn bytes_that_look_like_forms_never_panic(
        header in vec(prop::sample::select(vec![
            "multipart/form-data", ";", " ", "boundary", "=", "B", "\"", "\\", "*", "--",
        ]), 0..12),
        body in vec(prop::sample::select(vec![
            "--B", "--", "\r\n", "\n", "\r", "B", "Content-Disposition:", " form-data", ";", "name", "=", "\"",
            "model", "\\", "filename", "m", ":", "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n",
            "\r\n--B--",
        ]), 0..30),
    ) {
        check_any(header.concat().as_bytes(), body.concat().as_bytes())?;
        check_any(b"multipart/form-data; boundary=B", body.concat().as_bytes())?;
    }
}

/// Spans lie inside and hold what was found; a spliced form is a form.
fn check_any(content_type: &[u8], body: &[u8]) -> Result<(), TestCaseError> {
    let body = Bytes::copy_from_slice(body);
    let Ok(found) = scan(Api::OpenaiImageEdits, Some(content_type), &body) else {
        return Ok(());
    };
    let last = found.model_spans.iter().last().unwrap();
    prop_assert_eq!(found.model.as_deref().unwrap().as_bytes(), &body[last]);
    let sent: Vec<u8> = splice(&body, &found, "t").into_iter().flatten().collect();
    let again = scan(Api::OpenaiImageEdits, Some(content_type), &sent).unwrap();
    prop_assert_eq!(again.model.as_deref(), Some("t"));
    prop_assert_eq!(again.model_spans.len(), found.model_spans.len());
    Ok(())
}
