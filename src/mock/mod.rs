//! The scripted provider: an HTTP server that answers as a script says. For `rondo mock`, the quick start, scenarios and load tests.
//!
//! Not a model and not a proxy: it never calls anybody. Script, plan and the bytes of answers are pure; only `server` and its parts know sockets.
//! Two runs of a script with the same requests in the same order give the same answers; every drawn number comes from `seed`.
//!
//! # Keys of a script
//!
//! Unknown and duplicate keys are refused with line and column. An empty script answers everything with `ok`.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `listen` | address of a server of `rondo mock`; ignored when the server is embedded | `127.0.0.1:0` |
//! | `servers` | only in a file of `rondo mock`: name to script; then no other key stands beside it | one server, `mock` |
//! | `seed` | seed of probabilities and drawn delays | 0 |
//! | `answers` | answers in turn | `[ok]` |
//! | `loop` | whether a list starts again after its last answer; `false`: the last answer repeats | true |
//! | `order` | what the turn counts: `arrival` of requests, or `request_id`: every `x-request-id` begins the list anew | `arrival` |
//! | `models` | name, or beginning and `*`, to `{answers, loop}`: lists of their own; the first that fits is used | none |
//! | `windows` | answers by time since the start; the first open window is used before any list | none |
//! | `delay_ms` | delay of answers without their own | 0 |
//! | `trickle` | pace of bodies without their own | none |
//! | `refuse_connections` | connections are accepted and reset at once | false |
//!
//! An entry of `windows`: `from_ms` (0) to `to_ms`, repeated every `every_ms` when given, and `answer`.
//!
//! # Keys of an answer
//!
//! An answer is the name of a preset, or a mapping. It begins with one of `preset`, `status` or `body` or `sse`, `silence`, `abort`, `choose`; `text`, `chunks` and `gap_ms` alone mean `preset: ok`.
//!
//! | key | meaning |
//! |---|---|
//! | `preset` | a name of [`presets::Preset::ALL`]; the keys below change it |
//! | `choose` | `[{p, answer}]`: one of these by probability; they add up to 1 |
//! | `times` | in a list: how many turns the entry takes |
//! | `status` | status, 200 to 999 |
//! | `headers` | name to text, list of texts, or `null` to remove what the preset would send |
//! | `retry_after` | seconds, with fraction: sets `retry-after` (rounded up) and `retry-after-ms` |
//! | `body` | text as it is, or any YAML value sent as JSON; JSON gets its content type when none is given |
//! | `sse` | a list of events: `data` (text, or a value sent as JSON), `event`, `id`, `comment`, or `raw` text; `gap_ms` pauses before the event; `{silence: true}` as the last one keeps the stream open |
//! | `text`, `chunks`, `gap_ms` | for `ok` and `tools`: the text, the number of deltas, the pause between events |
//! | `content_length` | `exact`, `chunked`, or a number that is told whatever the body is. Bodies are `exact`, streams `chunked` |
//! | `delay_ms` | milliseconds before the answer begins, or `[least, most]` to draw from |
//! | `trickle` | `{bytes, gap_ms}`: the body in pieces of so many bytes with pauses |
//! | `abort_after` | ends the connection after so many bytes of the body; 0 is right after the header. Less than the body's length |
//! | `reset_after` | the same with a TCP reset, which may overtake the bytes before it |
//! | `silence_after` | sends no more after so many bytes, and keeps the connection |
//! | `silence: true` | reads the request and never answers |
//! | `abort` | `before_head`: reads the request and closes; `reset`: reads it and resets the connection |
//! | `answer_early` | answers before the request's body is read; the model is then known only from the path |
//!
//! Over HTTP/2, ending the connection ends the other streams on it too.

pub mod answer;
pub mod ask;
pub mod catalog;
pub mod plan;
pub mod presets;
pub mod script;
pub mod voice;
pub mod yaml;

#[cfg(feature = "proxy")]
mod body;
#[cfg(feature = "proxy")]
mod connection;
#[cfg(feature = "proxy")]
mod intake;
#[cfg(feature = "proxy")]
pub mod recorder;
#[cfg(feature = "proxy")]
mod reply;
#[cfg(feature = "proxy")]
pub mod server;
#[cfg(feature = "proxy")]
pub mod standalone;

pub use catalog::Catalog;
pub use plan::{Place, Plan, Question};
pub use presets::Preset;
#[cfg(feature = "proxy")]
pub use recorder::{Depth, Recorder, SeenRequest, body_hash};
pub use script::Script;
#[cfg(feature = "proxy")]
pub use server::{Clock, MockServer, Setup};
#[cfg(feature = "proxy")]
pub use standalone::{StandaloneError, bind, run_standalone, start_all};
pub use yaml::ScriptError;
