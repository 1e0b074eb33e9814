//! One operation as the data plane holds it: the executor, its chance source, and what is told to the observer.
//!
//! The cell is shared by the request's context, its current attempt and the list of what is in flight. The first two run on the same
//! task; the list is walked when the process ends, by a thread of its own, and the lock is contended then alone.
//! Invariants: every note of the executor reaches the observer once, in order, and `operation_ended` is called once, whoever lets go of
//! the operation and however: the cell is what the guard of its record stands in (R-L2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::Semaphore;

use super::host::{AttemptExtras, Clock, Observer, OperationEnd, OperationFacts, Stamp};
use super::inflight::InFlight;
use super::lifecycle::Lifecycle;
use crate::core::settlement::OperationOutcome;
use crate::core::usage::Usage;
use crate::executor::Executor;
use crate::executor::effect::{Next, Note, OperationSettled};
use crate::executor::event::Event;
use crate::executor::guard::Guard;
use crate::executor::plan::Plan;
use crate::executor::watchdog::{Reached, Watchdog};
use crate::policy::overload::SlowPhase;
use crate::policy::pace::Reader;
use crate::providers::usage::UsageReader;
use crate::store::Strict;

/// The status of records and metrics when the client left before an answer (R-D4).
pub const CLIENT_CLOSED_REQUEST: u16 = 499;
/// The status of both when time ran out before the client left, and nobody was there to have the answer (R-L4).
const GATEWAY_TIMEOUT: u16 = 504;

/// What the operation needs from the process.
#[derive(Clone)]
pub struct Surroundings {
    /// The process's clock.
    pub clock: Clock,
    /// Who counts and records.
    pub observer: Arc<dyn Observer>,
    /// Whether the process is draining.
    pub lifecycle: Lifecycle,
    /// Requests in flight.
    pub inflight: InFlight,
    /// Where a send waits until its pending record is on disk; `None` when nobody asked for that.
    pub strict: Option<Arc<Strict>>,
    /// Permits to read an answer on for a client that has left.
    pub drains: Arc<Semaphore>,
}

/// A shared operation.
pub struct OperationCell {
    /// What does not change.
    pub facts: OperationFacts,
    /// The process around it.
    pub around: Surroundings,
    inner: Mutex<Inner>,
}

struct Inner {
    executor: Executor,
    guard: Guard,
    chance: SmallRng,
    next: Option<Next>,
    drain_told: bool,
    attempt: Attempt,
    /// Target of each attempt, in order.
    targets: Vec<usize>,
    /// Time spent waiting for upstreams, up to the first byte to the client.
    upstream_time: Duration,
    upload_time: Duration,
    first_byte: Option<Stamp>,
    status: Option<u16>,
    response_bytes: u64,
    /// Reads what the current answer costs; of an answer that is not delivered nothing is kept.
    usage: Option<UsageReader>,
    end_seen: bool,
    reader: Reader,
    /// Whether the client was ended because it read too slowly.
    is_slow: bool,
    /// What the record says of usage, once there is a record.
    recorded: Option<Recorded>,
    /// Whether usage may have come between the report and the record.
    is_late: bool,
}

/// The usage that was recorded.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    sequence: Option<u64>,
    usage: Option<Usage>,
}

/// What the session learned of the current attempt.
#[derive(Debug, Default)]
struct Attempt {
    upstream_request_id: Option<String>,
    first_byte: Option<Stamp>,
    dispatched: Option<Stamp>,
}

impl OperationCell {
    /// A new operation; its first event is the caller's to feed.
    pub fn new(
        facts: OperationFacts,
        plan: Plan,
        around: Surroundings,
        seed: u64,
        upload_time: Duration,
    ) -> Arc<OperationCell> {
        let inner = Inner {
            executor: Executor::new(plan),
            guard: Guard::disarmed(),
            chance: SmallRng::seed_from_u64(seed),
            next: None,
            drain_told: false,
            attempt: Attempt::default(),
            targets: Vec::new(),
            upstream_time: Duration::ZERO,
            upload_time,
            first_byte: None,
            status: None,
            response_bytes: 0,
            usage: None,
            end_seen: false,
            reader: Reader::new(facts.snapshot.server.download_pace()),
            is_slow: false,
            recorded: None,
            is_late: false,
        };
        let cell = Arc::new(OperationCell {
            facts,
            around,
            inner: Mutex::new(inner),
        });
        cell.around.inflight.enlist(&cell);
        cell.inner.lock().guard.arm();
        cell.around.observer.operation_started(&cell.facts);
        cell
    }

    /// Feeds an event and returns what to do; a step that is not `Continue` is also kept for [`OperationCell::take_next`].
    pub fn feed(&self, event: Event) -> Next {
        let at = self.around.clock.stamp();
        let mut inner = self.inner.lock();
        if !inner.drain_told && self.around.lifecycle.is_draining() {
            inner.drain_told = true;
            if !matches!(event, Event::ShutdownBegun) {
                let next = self.step(&mut inner, Event::ShutdownBegun, at);
                // It ended a sleep; the timer that fires in the same moment has nothing more to say.
                let by_clock = matches!(event, Event::WaitElapsed | Event::DeadlinePassed);
                if by_clock && !matches!(next, Next::Continue) {
                    inner.next = Some(next.clone());
                    return next;
                }
            }
        }
        let next = self.step(&mut inner, event, at);
        if !matches!(next, Next::Continue) {
            inner.next = Some(next.clone());
        }
        next
    }

    fn step(&self, inner: &mut Inner, event: Event, at: Stamp) -> Next {
        let effects = inner.executor.handle(at.mono, event, &mut inner.chance);
        for note in &effects.notes {
            inner.guard.see(note);
        }
        for note in &effects.notes {
            self.note(inner, note, at);
        }
        effects.next
    }

    fn note(&self, inner: &mut Inner, note: &Note, at: Stamp) {
        let mut extras = AttemptExtras::default();
        let finished;
        match note {
            Note::AttemptOpened(begin) => {
                inner.attempt = Attempt::default();
                inner.targets.push(begin.target);
            }
            Note::SendDispatched(_) => inner.attempt.dispatched = Some(at),
            Note::AttemptSettled(_) => {
                finished = std::mem::take(&mut inner.attempt);
                if let Some(dispatched) = finished.dispatched
                    && inner.first_byte.is_none()
                {
                    inner.upstream_time += at.mono.since(dispatched.mono);
                }
                extras = AttemptExtras {
                    upstream_request_id: finished.upstream_request_id.as_deref(),
                    first_byte: finished.first_byte,
                };
                self.around.observer.note(&self.facts, note, extras, at);
                return;
            }
            _ => {}
        }
        self.around.observer.note(&self.facts, note, extras, at);
    }

    /// The step that was last told and not yet taken.
    pub fn take_next(&self) -> Option<Next> {
        self.inner.lock().next.take()
    }

    /// What limits the wait that begins; `None` when it is over. A wait that is dropped leaves its limit behind: that is what it is for.
    pub fn watch(&self, limit: Option<(Instant, Reached)>) {
        let watchdog = limit.map(|(due, reached)| Watchdog {
            due: self.around.clock.at(due),
            reached,
        });
        self.inner.lock().executor.watch(watchdog);
    }

    /// The upstream's header has arrived.
    pub fn upstream_header(&self, upstream_request_id: Option<&str>) {
        let at = self.around.clock.stamp();
        let mut inner = self.inner.lock();
        inner.executor.watch(None);
        inner.attempt.first_byte = Some(at);
        inner.attempt.upstream_request_id = upstream_request_id.map(str::to_owned);
    }

    /// A good answer has begun, whose cost this reader finds.
    pub fn answer_begun(&self, usage: Option<UsageReader>) {
        self.inner.lock().usage = usage;
    }

    /// Bytes of that answer came.
    pub fn answer_read(&self, bytes: &[u8]) {
        if let Some(usage) = &mut self.inner.lock().usage {
            usage.feed(bytes);
        }
    }

    /// That answer was read to its proper end.
    pub fn answer_ended(&self) {
        if let Some(usage) = &mut self.inner.lock().usage {
            usage.finish();
        }
    }

    /// That answer is not delivered: what it cost is not the operation's usage.
    pub fn answer_discarded(&self) {
        self.inner.lock().usage = None;
    }

    /// The header is about to be written to the client.
    pub fn committed(&self, status: u16) {
        let at = self.around.clock.stamp();
        let mut inner = self.inner.lock();
        if inner.first_byte.is_some() {
            return;
        }
        inner.status = Some(status);
        if let Some(dispatched) = inner.attempt.dispatched {
            inner.upstream_time += at.mono.since(dispatched.mono);
        }
        inner.first_byte = Some(at);
        let _ = self.step(&mut inner, Event::Committed, at);
    }

    /// Body bytes went to the client; `end` when they were the last.
    pub fn wrote(&self, bytes: usize, end: bool) {
        let mut inner = self.inner.lock();
        inner.response_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        inner.end_seen |= end;
    }

    /// How long the client may take for so many bytes; zero when it has kept too much waiting.
    pub fn allowance(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.inner.lock().reader.allowance(bytes)
    }

    /// The client took so many bytes, and this long for them.
    pub fn took(&self, bytes: usize, time: Duration) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.inner.lock().reader.took(bytes, time);
    }

    /// The client is ended because it reads too slowly.
    pub fn read_too_slowly(&self) {
        self.inner.lock().is_slow = true;
        self.around.observer.slow_client(SlowPhase::Download);
    }

    /// Whether the last byte of the answer was handed to the client's connection.
    pub fn end_seen(&self) -> bool {
        self.inner.lock().end_seen
    }

    /// Whether the header was handed to the client's connection.
    pub fn has_committed(&self) -> bool {
        self.inner.lock().first_byte.is_some()
    }

    /// Sends used and round reached, for the response headers.
    pub fn progress(&self) -> (u32, u8) {
        let inner = self.inner.lock();
        (inner.executor.sends(), inner.executor.round().number())
    }

    /// Whether the answer must not be retried by the caller.
    pub fn forbids_retry(&self) -> bool {
        self.inner.lock().executor.forbids_retry()
    }

    /// Name of the target whose answer is delivered.
    pub fn delivered_target(&self) -> Option<Arc<str>> {
        let position = self.inner.lock().told_target()?;
        self.facts
            .route
            .targets
            .get(position)
            .map(|target| Arc::clone(&target.name))
    }

    /// Whether the executor has nothing more to do.
    pub fn has_ended(&self) -> bool {
        self.inner.lock().executor.has_ended()
    }

    /// Reports the end to the observer, once. An operation that did not settle is settled as dropped first.
    pub fn report_end(&self) {
        let _report = self.around.inflight.report();
        let mut inner = self.inner.lock();
        // Everybody who holds it asks for its report; the clocks are looked at for one.
        if !inner.guard.is_armed() {
            return;
        }
        let at = self.around.clock.stamp();
        if let Some(event) = inner.guard.owes(&inner.executor) {
            let _ = self.step(&mut inner, event, at);
        }
        let Inner {
            guard, executor, ..
        } = &mut *inner;
        let Some(settled) = guard.stand_down(executor) else {
            return;
        };
        let end = self.end(&mut inner, &settled, at);
        if let Some(usage) = &end.usage {
            inner.executor.correct_tokens(usage);
        }
        drop(inner);
        let sequence = self.around.observer.operation_ended(&self.facts, &end);
        let mut inner = self.inner.lock();
        inner.recorded = Some(Recorded {
            sequence,
            usage: end.usage,
        });
        let is_late = inner.is_late;
        drop(inner);
        if is_late {
            self.usage_settled();
        }
    }

    /// Nothing more of the answer will be read: if it told more than the record says, the observer is told. Before there is a record
    /// this waits for it.
    pub fn usage_settled(&self) {
        let mut inner = self.inner.lock();
        let usage = inner.usage.as_ref().and_then(UsageReader::usage);
        let Some(recorded) = &mut inner.recorded else {
            inner.is_late = true;
            return;
        };
        if usage == recorded.usage {
            return;
        }
        recorded.usage = usage;
        let sequence = recorded.sequence;
        if let Some(usage) = &usage {
            inner.executor.correct_tokens(usage);
        }
        drop(inner);
        if let (Some(sequence), Some(usage)) = (sequence, usage) {
            let observer = &self.around.observer;
            observer.usage_came(&self.facts, sequence, usage);
        }
    }

    /// Whether usage of the current answer can still come.
    pub fn reads_usage(&self) -> bool {
        self.inner.lock().usage.is_some()
    }

    /// Whether the answer told its usage, and all of it.
    pub fn knows_usage(&self) -> bool {
        let inner = self.inner.lock();
        let usage = inner.usage.as_ref().and_then(UsageReader::usage);
        usage.is_some_and(|usage| !usage.partial)
    }

    fn end(&self, inner: &mut Inner, settled: &OperationSettled, at: Stamp) -> OperationEnd {
        let to_first_byte = inner
            .first_byte
            .unwrap_or(at)
            .mono
            .since(self.facts.started.mono);
        if settled.outcome == OperationOutcome::Succeeded
            && let Some(usage) = &mut inner.usage
        {
            // The client has it all, although HTTP/2 may say so in a frame of its own that nobody waited for.
            usage.finish();
        }
        let elsewhere = inner.upstream_time + inner.upload_time + settled.waited;
        // A client that left in the middle of an answer has not got the status that its header told (R-D4).
        let (status, otherwise) = match settled.outcome {
            OperationOutcome::Cancelled => (None, CLIENT_CLOSED_REQUEST),
            OperationOutcome::TimedOut => (inner.status, GATEWAY_TIMEOUT),
            OperationOutcome::Succeeded
            | OperationOutcome::UpstreamError
            | OperationOutcome::Exhausted
            | OperationOutcome::Rejected
            | OperationOutcome::Failed => (inner.status, CLIENT_CLOSED_REQUEST),
        };
        OperationEnd {
            status: status.unwrap_or(otherwise),
            outcome: settled.outcome,
            state: settled.state,
            reason: match settled.outcome {
                OperationOutcome::Cancelled if inner.is_slow => "slow_reader",
                _ => settled.reason,
            },
            target: inner.told_target(),
            sends: settled.sends,
            rounds: settled.rounds,
            waited: settled.waited,
            first_byte: inner.first_byte,
            ended: at,
            overhead: to_first_byte.saturating_sub(elsewhere),
            response_bytes: inner.response_bytes,
            usage: inner.usage.as_ref().and_then(UsageReader::usage),
        }
    }
}

/// The last holder lets go: whoever it was, the record is settled.
impl Drop for OperationCell {
    fn drop(&mut self) {
        // Before it is struck off, so that the end of the process sees one or the other.
        let _report = self.around.inflight.report();
        self.around.inflight.strike(self);
        self.report_end();
    }
}

impl Inner {
    /// The target whose answer the client gets, as a position in the route.
    fn told_target(&self) -> Option<usize> {
        let attempt = self.executor.told_attempt()?.checked_sub(1)?;
        self.targets.get(usize::try_from(attempt).ok()?).copied()
    }
}
