//! One answer of a script: its shape in YAML and its compilation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::events::{EventShape, content};
use super::fields::{Fields, fields, retry_after};
use super::values::{Count, DelayShape, FieldShape, Millis, Pairs, TextShape, TrickleShape};
use crate::mock::answer::{Act, Answer, Close, Content, Ending, Length, Reply, Trickle};
use crate::mock::presets::Preset;
use crate::mock::script::{Choice, WHOLE};

/// Deltas of one good answer; a body is composed in memory.
const CHUNKS_MAX: u64 = 100_000;

/// An answer as written, and how often it repeats.
pub(super) struct Spec {
    /// The answer.
    pub choice: Choice,
    /// How often.
    pub times: u64,
    is_repeated: bool,
}

impl Spec {
    /// The answer where nothing can repeat.
    pub(super) fn once(self) -> Result<Choice, &'static str> {
        if self.is_repeated {
            return Err("`times` is allowed only in a list of answers");
        }
        Ok(self.choice)
    }
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Spec, D::Error> {
        from.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = Spec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a preset, or a mapping that describes an answer")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Spec, E> {
        let preset = preset_named(name)?;
        let choice = Choice::One(Arc::new(Answer::preset(preset)));
        Ok(Spec {
            choice,
            times: 1,
            is_repeated: false,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Spec, A::Error> {
        let shape = AnswerShape::deserialize(de::value::MapAccessDeserializer::new(map))?;
        shape.compile().map_err(de::Error::custom)
    }
}

fn preset_named<E: de::Error>(name: &str) -> Result<Preset, E> {
    Preset::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Preset::ALL.into_iter().map(|(name, _)| name).collect();
        E::custom(format_args!(
            "unknown preset `{name}`; there are: {}",
            known.join(", ")
        ))
    })
}

struct PresetShape(Preset);

impl<'de> Deserialize<'de> for PresetShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PresetShape, D::Error> {
        preset_named(&String::deserialize(from)?).map(PresetShape)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerShape {
    preset: Option<PresetShape>,
    choose: Option<Vec<WeightShape>>,
    times: Option<Count>,
    silence: Option<bool>,
    abort: Option<AbortShape>,
    delay_ms: Option<DelayShape>,
    answer_early: Option<bool>,
    status: Option<u16>,
    headers: Option<Pairs<FieldShape>>,
    retry_after: Option<f64>,
    body: Option<TextShape>,
    sse: Option<Vec<EventShape>>,
    text: Option<String>,
    chunks: Option<Count>,
    gap_ms: Option<Millis>,
    content_length: Option<LengthShape>,
    abort_after: Option<u64>,
    reset_after: Option<u64>,
    silence_after: Option<u64>,
    trickle: Option<TrickleShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightShape {
    p: f64,
    answer: Spec,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum AbortShape {
    BeforeHead,
    Reset,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`exact`, `chunked` or a number of bytes")]
enum LengthShape {
    Word(LengthWord),
    Declared(u64),
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum LengthWord {
    Exact,
    Chunked,
}

/// A part of an answer, or what is wrong with it.
pub(super) type Compiled<T> = Result<T, String>;

impl AnswerShape {
    fn compile(mut self) -> Compiled<Spec> {
        let times = self.times.as_ref().map_or(1, |count| count.0);
        let is_repeated = self.times.is_some();
        let choice = match self.choose.take() {
            Some(weights) if self.describes_something() => {
                return Err(format!(
                    "beside `choose` only `times` is allowed ({} choices)",
                    weights.len()
                ));
            }
            Some(weights) => weighted(weights)?,
            None => Choice::One(Arc::new(self.answer()?)),
        };
        Ok(Spec {
            choice,
            times,
            is_repeated,
        })
    }

    fn describes_something(&self) -> bool {
        self.preset.is_some()
            || self.describes_reply()
            || self.silence.is_some()
            || self.abort.is_some()
            || self.delay_ms.is_some()
            || self.answer_early.is_some()
    }

    fn describes_reply(&self) -> bool {
        self.status.is_some()
            || self.headers.is_some()
            || self.retry_after.is_some()
            || self.body.is_some()
            || self.sse.is_some()
            || self.content_length.is_some()
            || self.abort_after.is_some()
            || self.reset_after.is_some()
            || self.silence_after.is_some()
            || self.trickle.is_some()
            || self.speaks()
    }

    fn speaks(&self) -> bool {
        self.text.is_some() || self.chunks.is_some() || self.gap_ms.is_some()
    }

    fn answer(mut self) -> Compiled<Answer> {
        let (label, mut act) = self.base()?;
        if act.replies_mut().is_empty() && self.describes_reply() {
            return Err("nothing is sent here, so status, headers and body have no place".into());
        }
        let delay = self.delay_ms.take().map(|shape| shape.0);
        let is_early = self.answer_early.unwrap_or(false);
        let overrides = self.overrides()?;
        for reply in act.replies_mut() {
            overrides.apply(reply)?;
        }
        Ok(Answer {
            label: Arc::from(label),
            delay,
            is_early,
            act,
        })
    }

    /// What the overrides start from.
    fn base(&self) -> Compiled<(String, Act)> {
        let preset = self.preset.as_ref().map(|shape| shape.0);
        let is_silent = self.silence == Some(true);
        match (preset, is_silent, self.abort) {
            (Some(preset), false, None) => Ok((preset.name().to_owned(), Act::of(preset))),
            (None, true, None) => Ok(("silence".to_owned(), Act::Silence)),
            (None, false, Some(AbortShape::BeforeHead)) => {
                Ok(("abort".to_owned(), Act::Close(Close::Orderly)))
            }
            (None, false, Some(AbortShape::Reset)) => {
                Ok(("reset".to_owned(), Act::Close(Close::Reset)))
            }
            (None, false, None) if self.speaks() => Ok(("ok".to_owned(), Act::of(Preset::Ok))),
            (None, false, None) if self.status.is_some() || self.body.is_some() => {
                let status = self.status.unwrap_or(200);
                Ok((
                    format!("status {status}"),
                    Act::Reply(Box::new(Reply::bare(status))),
                ))
            }
            (None, false, None) if self.sse.is_some() => {
                Ok(("sse".to_owned(), Act::Reply(Box::new(Reply::bare(200)))))
            }
            (None, false, None) => Err(
                "an answer needs `preset`, `status`, `body`, `sse`, `silence` or `abort`".into(),
            ),
            _ => Err("only one of `preset`, `silence` and `abort` is allowed".into()),
        }
    }

    fn overrides(self) -> Compiled<Overrides> {
        let status = match self.status {
            Some(status @ (0..=199 | 1000..)) => {
                return Err(format!("status {status}: 200 to 999 is allowed"));
            }
            status => status,
        };
        let ending = match (self.abort_after, self.reset_after, self.silence_after) {
            (None, None, None) => None,
            (Some(bytes), None, None) => Some(Ending::AbortAfter(bytes, Close::Orderly)),
            (None, Some(bytes), None) => Some(Ending::AbortAfter(bytes, Close::Reset)),
            (None, None, Some(bytes)) => Some(Ending::SilentAfter(bytes)),
            _ => {
                return Err(
                    "only one of `abort_after`, `reset_after`, `silence_after` is allowed".into(),
                );
            }
        };
        let mut headers = fields(self.headers)?;
        if let Some(seconds) = self.retry_after {
            headers.extend(retry_after(seconds)?);
        }
        let (content, hush) = content(self.body, self.sse)?;
        let length = self.content_length.map(|shape| match shape {
            LengthShape::Word(LengthWord::Exact) => Length::Exact,
            LengthShape::Word(LengthWord::Chunked) => Length::Chunked,
            LengthShape::Declared(bytes) => Length::Declared(bytes),
        });
        let chunks = match self.chunks {
            Some(Count(count @ ..=CHUNKS_MAX)) => u32::try_from(count).ok(),
            Some(_) => return Err(format!("`chunks`: 1 to {CHUNKS_MAX} is allowed")),
            None => None,
        };
        Ok(Overrides {
            status,
            headers,
            content,
            length,
            ending: ending.or(hush),
            trickle: self.trickle.map(|shape| shape.0),
            text: self.text.map(Arc::from),
            chunks,
            gap: self.gap_ms.map(|gap| gap.0),
        })
    }
}

/// What a script changes in a reply.
struct Overrides {
    status: Option<u16>,
    headers: Fields,
    content: Option<Content>,
    length: Option<Length>,
    ending: Option<Ending>,
    trickle: Option<Trickle>,
    text: Option<Arc<str>>,
    chunks: Option<u32>,
    gap: Option<Duration>,
}

impl Overrides {
    fn apply(&self, reply: &mut Reply) -> Compiled<()> {
        reply.status = self.status.unwrap_or(reply.status);
        reply.length = self.length.unwrap_or(reply.length);
        reply.ending = self.ending.unwrap_or(reply.ending);
        reply.trickle = self.trickle.or(reply.trickle);
        if let Some(content) = &self.content {
            reply.content = content.clone();
        }
        if let Some(media) = media_type(reply) {
            reply
                .headers
                .insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media));
        }
        for (name, values) in &self.headers {
            reply.headers.remove(name);
            for value in values {
                reply.headers.append(name, value.clone());
            }
            if values.is_empty() {
                reply.removed.push(name.clone());
            }
        }
        self.voice(reply)
    }

    fn voice(&self, reply: &mut Reply) -> Compiled<()> {
        if self.text.is_none() && self.chunks.is_none() && self.gap.is_none() {
            return Ok(());
        }
        let Content::Good(voice) = &mut reply.content else {
            return Err("`text`, `chunks` and `gap_ms` belong to `ok` and `tools`".into());
        };
        voice.text = self.text.clone().or(voice.text.take());
        voice.chunks = self.chunks.or(voice.chunks);
        voice.gap = self.gap.unwrap_or(voice.gap);
        Ok(())
    }
}

/// The media type that goes without saying: of events, and of JSON whose script names none.
fn media_type(reply: &Reply) -> Option<&'static str> {
    match &reply.content {
        Content::Pieces(_) => Some("text/event-stream; charset=utf-8"),
        Content::Bytes(bytes) if !reply.headers.contains_key(http::header::CONTENT_TYPE) => {
            let is_json = matches!(bytes.first(), Some(b'{' | b'['));
            is_json.then_some("application/json")
        }
        Content::Bytes(_) | Content::Good(_) => None,
    }
}

fn weighted(weights: Vec<WeightShape>) -> Compiled<Choice> {
    let mut sum = 0.0;
    let mut choices = Vec::with_capacity(weights.len());
    for weight in weights {
        if !(0.0..=1.0).contains(&weight.p) {
            return Err(format!("p: {} is not a probability from 0 to 1", weight.p));
        }
        sum += weight.p;
        // Exact for nine decimals; the last bound is raised to the whole below.
        let until = (sum * WHOLE as f64).round() as u64;
        choices.push((until, weight.answer.once()?));
    }
    if (sum - 1.0_f64).abs() > 1e-6 {
        return Err(format!(
            "the probabilities of `choose` add up to {sum}, not to 1"
        ));
    }
    // Choices of probability 0 at the end must stay at 0, so all that reached the whole are raised alike.
    let reached = choices.last().map_or(WHOLE, |(until, _)| *until);
    for (until, _) in choices.iter_mut().filter(|(until, _)| *until == reached) {
        *until = WHOLE;
    }
    Ok(Choice::Weighted(choices))
}
