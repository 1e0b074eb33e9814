//! Header fields of a script.

use http::header::{HeaderName, HeaderValue};

use super::answer::Compiled;
use super::values::{FieldShape, Pairs};

/// Fields with their values; one without values is to be removed.
pub(super) type Fields = Vec<(HeaderName, Vec<HeaderValue>)>;

/// The fields of `headers`.
pub(super) fn fields(headers: Option<Pairs<FieldShape>>) -> Compiled<Fields> {
    let pairs = headers.map(|pairs| pairs.0).unwrap_or_default();
    let mut fields = Vec::with_capacity(pairs.len());
    for (name, FieldShape(texts)) in pairs {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("`{name}` is not the name of a header"))?;
        let values: Result<Vec<_>, _> = texts
            .iter()
            .map(|text| HeaderValue::from_str(text))
            .collect();
        let values = values.map_err(|_| format!("the value of header `{name}` is not valid"))?;
        fields.push((parsed, values));
    }
    Ok(fields)
}

/// The fields of `retry_after`.
pub(super) fn retry_after(seconds: f64) -> Compiled<Fields> {
    if !(0.0..=1e9).contains(&seconds) {
        return Err("`retry_after` is a number of seconds".into());
    }
    let millis = (seconds * 1000.0).ceil() as u64;
    Ok(vec![
        (
            http::header::RETRY_AFTER,
            vec![HeaderValue::from(millis.div_ceil(1000))],
        ),
        (
            HeaderName::from_static("retry-after-ms"),
            vec![HeaderValue::from(millis)],
        ),
    ])
}
