//! What recording tells of itself: its own counters, brought over at each scrape.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::metrics::{counter, counters, gauge};
use crate::ledger::Book;
use crate::store::Counts;
use crate::store::counts::{KINDS, STATES};

/// The families of the ledger.
#[derive(Debug)]
pub(super) struct LedgerFamilies {
    records: IntCounterVec,
    lost: IntCounter,
    queue: IntGauge,
    spool_bytes: IntGauge,
    abandoned: IntCounter,
    unconfirmed: IntCounter,
    errors: IntCounter,
}

impl LedgerFamilies {
    pub(super) fn try_new(r: &Registry) -> prometheus::Result<LedgerFamilies> {
        Ok(LedgerFamilies {
            records: counters(
                r,
                "rondo_ledger_records_total",
                "Records that the store has taken. Of an operation, its terminal record counts once, with each of its attempts.",
                &["kind", "state"],
            )?,
            lost: counter(
                r,
                "rondo_ledger_lost_total",
                "Rows that were not kept: no room, or the store refused them.",
            )?,
            queue: gauge(
                r,
                "rondo_ledger_queue",
                "Records on their way to the store, in memory and on disk.",
            )?,
            spool_bytes: gauge(
                r,
                "rondo_ledger_spool_bytes",
                "Bytes of records that wait on disk for the store.",
            )?,
            abandoned: counter(
                r,
                "rondo_ledger_abandoned_total",
                "Pending rows of ended processes that were settled as abandoned.",
            )?,
            unconfirmed: counter(
                r,
                "rondo_ledger_unconfirmed_total",
                "Sends that did not wait any longer for their pending record (durability: strict).",
            )?,
            errors: counter(
                r,
                "rondo_ledger_store_errors_total",
                "Failures of the store that made records wait on disk.",
            )?,
        })
    }

    /// Brings the families to what is counted elsewhere.
    pub(super) fn read(&self, book: &Book, recording: Option<&Counts>) {
        let Some(counts) = recording else {
            raise(&self.lost, book.lost());
            return;
        };
        for (kind, kind_label) in KINDS.iter().enumerate() {
            for (state, state_label) in STATES.iter().enumerate() {
                let count = counts.records(kind, state);
                if count > 0 {
                    let labels = [*kind_label, state_label.label()];
                    raise(&self.records.with_label_values(&labels), count);
                }
            }
        }
        raise(&self.lost, book.lost().saturating_add(counts.lost()));
        raise(&self.abandoned, counts.abandoned());
        raise(&self.unconfirmed, counts.unconfirmed());
        raise(&self.errors, counts.errors());
        let uncollected = u64::try_from(book.uncollected()).unwrap_or(u64::MAX);
        let waiting = counts.waiting().saturating_add(uncollected);
        self.queue.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let bytes = i64::try_from(counts.spool_bytes()).unwrap_or(i64::MAX);
        self.spool_bytes.set(bytes);
    }
}

/// A counter follows what is counted elsewhere, and never goes back.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
