//! Properties of looking: cursors and times survive the way out and back, and paging sees each operation once whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::Record;
use rondo::ledger::columns::StoredRecord;
use rondo::ledger::store::{Cursor, Query, Reader, renamed};
use rondo::records::ask::{Since, fits};
use rondo::records::page::{again, merge, one_more};
use rondo::records::utc::Utc;
use rondo::records::{Row, cursor};

use crate::reader::{Shelf, place, under_id};
use crate::records::begun;

proptest! {
    #[test]
    fn cursors_come_back_as_they_left(micros: i64, id in "[ -~äß\u{1F600}]{0,60}") {
        let there = Cursor { started_at: WallTime::from_unix_micros(micros), operation_id: id };
        let text = cursor::to_text(&there);
        // It goes into a query string and onto a command line as it is.
        prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        prop_assert!(text.len() <= cursor::CURSOR_BYTES_MAX);
        prop_assert_eq!(cursor::from_text(&text), Ok(there));
    }

    #[test]
    fn a_damaged_cursor_is_refused(micros: i64, id in "[a-z0-9]{1,40}", at: prop::sample::Index, letter in "[A-Za-z0-9_-]") {
        let text = cursor::to_text(&Cursor { started_at: WallTime::from_unix_micros(micros), operation_id: id });
        let at = at.index(text.len());
        let damaged = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
        prop_assert!(damaged == text || cursor::from_text(&damaged).is_err());
        prop_assert!(cursor::from_text(&text[..at]).is_err());
        let longer = text + &letter;
        prop_assert!(cursor::from_text(&longer).is_err());
    }

    #[test]
    fn no_text_is_a_cursor_or_a_time_by_accident(text in "\\PC{0,400}") {
        prop_assert!(cursor::from_text(&text).is_err());
        if let Ok(Since::At(at)) = Since::parse(&text) {
            prop_assert!(Utc(at).to_string().starts_with(&text[..10]));
        }
    }

    #[test]
    fn times_come_back_as_they_left(micros in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
        let time = Utc(WallTime::from_unix_micros(micros));
        prop_assert_eq!(Utc::parse(&time.to_string()), Some(time));
    }

    // R-L1 R-S23
    #[test]
    fn paging_sees_each_operation_once(
        count in 0_usize..40,
        limit in 1_usize..8,
        pending_only in prop::bool::weighted(0.2),
        choices in vec(any::<u8>(), 600),
    ) {
        World::new(choices, count).walk(limit, pending_only)?;
    }
}

/// A process and its store, which go on between any two looks.
struct World {
    choices: std::vec::IntoIter<u8>,
    memory: BTreeMap<u64, Record>,
    shelf: Shelf,
    written: BTreeMap<u64, State>,
    begun: u64,
    clock: i64,
    /// Whether the last one that began has an id that others have, too.
    shared: bool,
}

impl World {
    fn new(choices: Vec<u8>, count: usize) -> World {
        let mut world = World {
            choices: choices.into_iter(),
            memory: BTreeMap::new(),
            shelf: Shelf::default(),
            written: BTreeMap::new(),
            begun: 0,
            clock: 0,
            shared: false,
        };
        for _ in 0..count {
            world.begin();
            world.go_on(3);
        }
        world
    }

    fn choose(&mut self, below: u8) -> u8 {
        self.choices.next().unwrap_or(0) % below
    }

    /// Several begin in the same microsecond, and some under an id that was used before.
    fn begin(&mut self) {
        self.begun += 1;
        // What a place does not tell apart is an id that is used twice, and another one in the same microsecond.
        let shares = self.choose(4) == 0;
        let moves = self.choose(2) == 0 || shares || self.shared;
        self.shared = shares;
        self.clock += i64::from(moves);
        let id = match shares {
            true => "same".to_owned(),
            false => format!("op-{}-{}", self.choose(200), self.begun),
        };
        let record = begun(self.begun, &id, WallTime::from_unix_micros(self.clock));
        self.memory.insert(self.begun, record);
    }

    /// So many times: an operation ends, is written, is let go; or nothing happens.
    fn go_on(&mut self, times: u8) {
        for _ in 0..times {
            let open: Vec<u64> = self.memory.keys().copied().collect();
            if open.is_empty() {
                return;
            }
            let which = open[usize::from(self.choose(250)) % open.len()];
            match self.choose(4) {
                0 => self.end(which),
                1 => self.write(which),
                2 => self.let_go(which),
                _ => {}
            }
        }
    }

    fn end(&mut self, which: u64) {
        let operation = &mut self.memory.get_mut(&which).unwrap().operation;
        if operation.state == State::Pending {
            operation.state = State::Succeeded;
            operation.finished_at = Some(WallTime::from_unix_micros(self.clock));
        }
    }

    fn write(&mut self, which: u64) {
        let record = &self.memory[&which];
        let row = StoredRecord::from(record);
        let id = &record.operation.operation_id;
        let mine = (
            record.operation.boot_id.to_string(),
            i64::try_from(which).unwrap(),
        );
        let others = self.shelf.find(&Query {
            limit: 999,
            id: Some(id.to_string()),
            ..Query::default()
        });
        let is_taken = others.unwrap().iter().any(|other| {
            let row = Row::operation(other);
            row.text("operation_id") == Some(id) && row.number("sequence") != Some(mine.1)
        });
        self.written.insert(which, record.operation.state);
        match is_taken {
            true => self.shelf.put(under_id(row, &renamed(id, &mine.0, mine.1))),
            false => self.shelf.put(row),
        }
    }

    /// Memory is bounded: what has ended and is written may leave it.
    fn let_go(&mut self, which: u64) {
        if self.written.get(&which) == Some(&State::Succeeded) {
            self.memory.remove(&which);
        }
    }

    fn recent(&self, limit: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let fitting = self.memory.values().filter(|record| fits(record));
        let mut found: Vec<Arc<Record>> = fitting.cloned().map(Arc::new).collect();
        found.sort_by_key(|record| {
            let operation = &record.operation;
            std::cmp::Reverse((operation.started_at, operation.operation_id.clone()))
        });
        found.truncate(limit);
        found
    }

    fn walk(mut self, limit: usize, pending_only: bool) -> Result<(), TestCaseError> {
        let existing = self.begun;
        let pending_before: Vec<u64> = self.pending();
        let mut query = Query {
            limit,
            state: pending_only.then_some(State::Pending),
            ..Query::default()
        };
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        let mut last = None;
        for pages in 0.. {
            prop_assert!(pages < 200, "it ends");
            let wide = one_more(&query);
            let memory = self.recent(wide.limit, |record| fits(&query, record));
            self.go_on(3);
            let stored = self.shelf.find(&wide).unwrap();
            self.go_on(3);
            let now = self.recent(stored.len(), again(&stored));
            let page = merge(&query, &memory, stored, &now);
            prop_assert!(page.records.len() <= limit);
            for record in &page.records {
                let row = Row::operation(record);
                *seen
                    .entry(u64::try_from(row.number("sequence").unwrap()).unwrap())
                    .or_default() += 1;
                let here = (place(record).0, row.number("sequence"));
                prop_assert!(
                    last.as_ref().is_none_or(|(at, _)| *at >= here.0),
                    "newest first"
                );
                last = Some(here);
                prop_assert!(!pending_only || row.text("state") == Some("pending"));
            }
            let Some(next) = page.next else { break };
            query.before = Some(next);
            self.begin();
            self.go_on(3);
        }
        let twice = seen.iter().find(|(_, times)| **times > 1);
        prop_assert_eq!(twice, None);
        let wanted: Vec<u64> = match pending_only {
            // Those that were pending all the while.
            true => self
                .pending()
                .into_iter()
                .filter(|one| pending_before.contains(one))
                .collect(),
            false => (1..=existing).collect(),
        };
        let missed = wanted.iter().find(|one| !seen.contains_key(one));
        prop_assert_eq!(missed, None);
        Ok(())
    }

    fn pending(&self) -> Vec<u64> {
        let pending = self
            .memory
            .values()
            .filter(|record| record.operation.state == State::Pending);
        pending.map(|record| record.sequence).collect()
    }
}
