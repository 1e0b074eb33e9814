//! The body of an answer as hyper pulls it: pieces with pauses, slow, broken off, or falling silent.
//!
//! Not here: what the bytes say. Invariant: a body that is dropped before its end tells the recorder that the client left, unless this side ended the connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::answer::{Ending, Trickle};
use super::connection::{Chunk, Control};
use super::recorder::{Entry, Recorder};
use super::voice::Piece;

/// Watches one request from its header to the end of its answer.
pub(super) struct Watch {
    recorder: Recorder,
    entry: Entry,
    control: Arc<Control>,
    is_over: bool,
}

impl Watch {
    /// Watches a request that was entered.
    pub fn new(recorder: Recorder, entry: Entry, control: Arc<Control>) -> Watch {
        Watch {
            recorder,
            entry,
            control,
            is_over: false,
        }
    }

    /// Changes what is recorded of the request.
    pub fn update(&self, change: impl FnOnce(&mut super::recorder::SeenRequest)) {
        self.recorder.update(self.entry, change);
    }

    /// Notes that the client left.
    pub fn client_left(mut self) {
        self.is_over = true;
        self.update(|seen| seen.closed_by_client = Some(Instant::now()));
    }

    fn over(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.update(|seen| seen.answered = Some(Instant::now()));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over && !self.control.is_ended_by_us() {
            self.update(|seen| seen.closed_by_client = Some(Instant::now()));
        }
    }
}

/// Where the bytes come from.
pub(super) enum Source {
    /// One piece.
    One(Bytes),
    /// Prepared pieces.
    Shared(Arc<[Piece]>),
    /// Pieces composed for the request.
    Own(Vec<Piece>),
}

impl Source {
    fn piece(&self, index: usize) -> Option<(Duration, Bytes)> {
        let pieces: &[Piece] = match self {
            Source::One(bytes) => return (index == 0).then(|| (Duration::ZERO, bytes.clone())),
            Source::Shared(pieces) => pieces,
            Source::Own(pieces) => pieces,
        };
        pieces
            .get(index)
            .map(|piece| (piece.gap, piece.bytes.clone()))
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        let pieces: &[Piece] = match self {
            Source::One(bytes) => return bytes.len() as u64,
            Source::Shared(pieces) => pieces,
            Source::Own(pieces) => pieces,
        };
        pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }
}

/// How a body goes out.
pub(super) struct Pace {
    /// How it ends.
    pub ending: Ending,
    /// Slow pieces.
    pub trickle: Option<Trickle>,
    /// Bytes after which the answer counts as complete, when told in the header.
    pub enough: Option<u64>,
}

/// The body of an answer.
pub(super) struct ReplyBody {
    source: Source,
    next: usize,
    current: Bytes,
    pause: Option<Pin<Box<Sleep>>>,
    pace: Pace,
    sent: u64,
    watch: Watch,
}

impl ReplyBody {
    /// A body at its beginning.
    pub fn new(source: Source, pace: Pace, watch: Watch) -> ReplyBody {
        let mut body = ReplyBody {
            source,
            next: 0,
            current: Bytes::new(),
            pause: None,
            pace,
            sent: 0,
            watch,
        };
        body.note_end();
        body
    }

    /// Bytes that may still go out; `None` without a limit.
    fn allowance(&self) -> Option<u64> {
        match self.pace.ending {
            Ending::Whole => None,
            Ending::AbortAfter(bytes, _) | Ending::SilentAfter(bytes) => {
                Some(bytes.saturating_sub(self.sent))
            }
        }
    }

    /// Moves to the next bytes; false when there are none.
    fn advance(&mut self) -> bool {
        while self.current.is_empty() {
            let Some((gap, bytes)) = self.source.piece(self.next) else {
                return false;
            };
            self.next += 1;
            self.current = bytes;
            if !gap.is_zero() {
                self.pause = Some(Box::pin(tokio::time::sleep(gap)));
            }
        }
        true
    }

    fn is_exhausted(&self) -> bool {
        self.current.is_empty() && self.source.piece(self.next).is_none()
    }

    fn note_end(&mut self) {
        let is_enough = self.pace.enough.is_some_and(|enough| self.sent >= enough);
        if is_enough || (self.pace.ending == Ending::Whole && self.is_exhausted()) {
            self.watch.over();
        }
    }

    fn take(&mut self) -> Chunk {
        let mut count = self.current.len();
        if let Some(allowed) = self.allowance() {
            count = count.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        }
        if let Some(trickle) = self.pace.trickle {
            count = count.min(trickle.bytes);
        }
        let bytes = self.current.split_to(count);
        self.sent += count as u64;
        if let Some(trickle) = self.pace.trickle
            && !self.is_exhausted()
        {
            self.pause = Some(Box::pin(tokio::time::sleep(trickle.gap)));
        }
        self.note_end();
        match self.pace.ending {
            Ending::AbortAfter(..) => Chunk::counted(bytes, &self.watch.control),
            Ending::Whole | Ending::SilentAfter(_) => Chunk::plain(bytes),
        }
    }

    /// What happens where the script cuts the body.
    fn cut(&mut self) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        match self.pace.ending {
            Ending::Whole => Poll::Ready(None),
            Ending::SilentAfter(_) => Poll::Pending,
            Ending::AbortAfter(_, close) => {
                self.watch.control.finish(close);
                Poll::Pending
            }
        }
    }
}

impl Body for ReplyBody {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        let body = self.get_mut();
        if body.allowance() == Some(0) || (body.pause.is_none() && !body.advance()) {
            return body.cut();
        }
        if let Some(pause) = &mut body.pause {
            ready!(pause.as_mut().poll(cx));
            body.pause = None;
        }
        // A pause of the pace may come before the pause of the next piece.
        if body.current.is_empty() {
            return Pin::new(body).poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(body.take()))))
    }

    fn is_end_stream(&self) -> bool {
        self.pace.ending == Ending::Whole && self.is_exhausted()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
