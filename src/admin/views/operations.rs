//! An operation with its attempts nested, under the column names of the records.

use std::sync::Arc;

use serde::Serialize;

use super::utc::Utc;
use crate::core::class::Class;
use crate::core::decision::Decision;
use crate::ledger::{AttemptEntry, Record};

#[derive(Serialize)]
pub(in crate::admin) struct OperationsView<'a> {
    operations: Vec<OperationView<'a>>,
}

impl<'a> OperationsView<'a> {
    pub(in crate::admin) fn new(records: &'a [Arc<Record>]) -> OperationsView<'a> {
        let operations = records.iter().map(|record| OperationView::new(record));
        OperationsView {
            operations: operations.collect(),
        }
    }
}

#[derive(Serialize)]
struct OperationView<'a> {
    operation_id: &'a str,
    boot_id: &'a str,
    route: &'a str,
    api: &'static str,
    public_model: &'a str,
    stream: bool,
    state: &'static str,
    http_status: Option<u16>,
    error_class: Option<&'static str>,
    reason: &'static str,
    client_key: Option<&'a str>,
    started_at: Utc,
    first_byte_at: Option<Utc>,
    finished_at: Option<Utc>,
    latency_ms: Option<u64>,
    wait_ms: u64,
    sends: u32,
    rounds: u8,
    request_bytes: u64,
    response_bytes: u64,
    request_capture: &'static str,
    response_capture: &'static str,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
    usage_partial: Option<bool>,
    /// Not a column: the target whose answer was delivered.
    target: Option<&'a str>,
    attempts: Vec<AttemptView<'a>>,
}

impl<'a> OperationView<'a> {
    fn new(record: &'a Record) -> OperationView<'a> {
        let row = &record.operation;
        OperationView {
            operation_id: &row.operation_id,
            boot_id: &row.boot_id,
            route: &row.route,
            api: row.api.label(),
            public_model: &row.public_model,
            stream: row.stream,
            state: row.state.label(),
            http_status: row.http_status,
            error_class: row.error_class.map(Class::label),
            reason: row.reason,
            client_key: row.client_key.as_deref(),
            started_at: Utc(row.started_at),
            first_byte_at: row.first_byte_at.map(Utc),
            finished_at: row.finished_at.map(Utc),
            latency_ms: row.latency_ms,
            wait_ms: row.wait_ms,
            sends: row.sends,
            rounds: row.rounds,
            request_bytes: row.request_bytes,
            response_bytes: row.response_bytes,
            request_capture: row.request_capture.label(),
            response_capture: row.response_capture.label(),
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            cached_tokens: row.cached_tokens,
            reasoning_tokens: row.reasoning_tokens,
            usage_partial: row.usage_partial,
            target: record.delivered_by.as_deref(),
            attempts: record.attempts.iter().map(AttemptView::new).collect(),
        }
    }
}

#[derive(Serialize)]
struct AttemptView<'a> {
    attempt_no: u32,
    round: u8,
    candidate_index: usize,
    retry_index: u32,
    target: &'a str,
    provider: &'a str,
    key_name: Option<&'a str>,
    upstream_model: &'a str,
    state: &'static str,
    delivery: Option<&'static str>,
    class: Option<&'static str>,
    certified: bool,
    decision: Option<&'static str>,
    http_status: Option<u16>,
    error_class: Option<&'static str>,
    upstream_request_id: Option<&'a str>,
    retry_after_ms: Option<u64>,
    started_at: Utc,
    first_byte_at: Option<Utc>,
    finished_at: Option<Utc>,
    latency_ms: Option<u64>,
}

impl<'a> AttemptView<'a> {
    fn new(row: &'a AttemptEntry) -> AttemptView<'a> {
        AttemptView {
            attempt_no: row.attempt_no,
            round: row.round.number(),
            candidate_index: row.candidate_index,
            retry_index: row.retry_index,
            target: &row.target,
            provider: &row.provider,
            key_name: row.key_name.as_deref(),
            upstream_model: &row.upstream_model,
            state: row.state.label(),
            delivery: row.delivery,
            class: row.class.map(Class::label),
            certified: row.certified,
            decision: row.decision.map(Decision::label),
            http_status: row.http_status,
            error_class: row.error_class.map(Class::label),
            upstream_request_id: row.upstream_request_id.as_deref(),
            retry_after_ms: row.retry_after_ms,
            started_at: Utc(row.started_at),
            first_byte_at: row.first_byte_at.map(Utc),
            finished_at: row.finished_at.map(Utc),
            latency_ms: row.latency_ms,
        }
    }
}
