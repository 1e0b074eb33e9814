//! Values that scripts share: times, counts, pairs in order, texts that may be JSON.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::mock::answer::{Delay, Trickle};

/// The longest time that a script may name: a day.
const MILLIS_MAX: u64 = 86_400_000;
/// The largest count that a script may name: repetitions of an answer, bytes of a piece.
const COUNT_MAX: u64 = 1_000_000_000;

/// A time in milliseconds.
pub(super) struct Millis(pub Duration);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
        match u64::deserialize(from)? {
            millis @ 0..=MILLIS_MAX => Ok(Millis(Duration::from_millis(millis))),
            _ => Err(de::Error::custom(format_args!(
                "at most {MILLIS_MAX} ms are allowed"
            ))),
        }
    }
}

/// A number of at least 1.
pub(super) struct Count(pub u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
        match u64::deserialize(from)? {
            count @ 1..=COUNT_MAX => Ok(Count(count)),
            _ => Err(de::Error::custom(format_args!(
                "1 to {COUNT_MAX} is allowed"
            ))),
        }
    }
}

/// `20`, or `[10, 50]` for a drawn delay.
#[derive(Deserialize)]
#[serde(untagged, expecting = "milliseconds, or [least, most]")]
enum DelayForm {
    Fixed(u64),
    Between([u64; 2]),
}

/// A delay.
pub(super) struct DelayShape(pub Delay);

impl<'de> Deserialize<'de> for DelayShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DelayShape, D::Error> {
        let (least, most) = match DelayForm::deserialize(from)? {
            DelayForm::Fixed(millis) => (millis, millis),
            DelayForm::Between([least, most]) => (least, most),
        };
        if most < least || most > MILLIS_MAX {
            return Err(de::Error::custom(format_args!(
                "a delay is [least, most], at most {MILLIS_MAX} ms"
            )));
        }
        let [from, to] = [least, most].map(Duration::from_millis);
        Ok(DelayShape(Delay { from, to }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrickleForm {
    bytes: Count,
    gap_ms: Millis,
}

/// A pace.
pub(super) struct TrickleShape(pub Trickle);

impl<'de> Deserialize<'de> for TrickleShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TrickleShape, D::Error> {
        let TrickleForm { bytes, gap_ms } = TrickleForm::deserialize(from)?;
        let bytes = usize::try_from(bytes.0).unwrap_or(usize::MAX);
        Ok(TrickleShape(Trickle {
            bytes,
            gap: gap_ms.0,
        }))
    }
}

/// A text as it is, or any other value as JSON.
pub(super) struct TextShape(pub String);

impl<'de> Deserialize<'de> for TextShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TextShape, D::Error> {
        Ok(TextShape(match Value::deserialize(from)? {
            Value::String(text) => text,
            other => other.to_string(),
        }))
    }
}

/// The values of a header field: one, several, or none to remove it.
pub(super) struct FieldShape(pub Vec<String>);

impl<'de> Deserialize<'de> for FieldShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FieldShape, D::Error> {
        let values = match Value::deserialize(from)? {
            Value::Null => Vec::new(),
            Value::Array(values) => values,
            value => vec![value],
        };
        let texts = values.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(flag) => Ok(flag.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(de::Error::custom(
                "a header is a text, a list of texts, or null",
            )),
        });
        texts.collect::<Result<_, _>>().map(FieldShape)
    }
}

/// A mapping in the order in which it is written, without duplicate keys.
pub(super) struct Pairs<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pairs<V>, D::Error> {
        from.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
    type Value = Pairs<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
        let mut pairs: Vec<(String, V)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(de::Error::custom(format_args!("duplicate key `{key}`")));
            }
            let value = map.next_value()?;
            pairs.push((key, value));
        }
        Ok(Pairs(pairs))
    }
}
