//! Operations of the admin plane with a store behind it: memory and store read as one, and memory is told when the store does not answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::StatusCode;
use rondo::ledger::Record;
use rondo::ledger::columns::{OPERATIONS, Stored, StoredRecord};
use rondo::ledger::store::renamed;
use serde_json::Value;

use crate::admin::{Host, get, host, ids};
use crate::reader::{Shelf, in_state, under_id};

/// The process of [`host`] with an empty store.
fn with_shelf() -> (Host, Arc<Shelf>) {
    let (mut host, shelf) = (host(), Arc::new(Shelf::default()));
    host.shelf = Some(Arc::clone(&shelf));
    (host, shelf)
}

fn record(host: &Host, id: &str) -> Arc<Record> {
    let mut found = host
        .telemetry
        .recent(1, |record| *record.operation.operation_id == *id);
    found.remove(0)
}

/// What a process before this one wrote.
fn of_another_boot(host: &Host, like: &str, id: &str) -> StoredRecord {
    let mut record = under_id(StoredRecord::from(&record(host, like)), id);
    let mut set = |column: &str, value: Stored| {
        record.operation[OPERATIONS.position(column).unwrap()] = value;
    };
    set("boot_id", Stored::Text("earlier".into()));
    set("started_at", Stored::Number(1_600_000_000_000_000));
    record
}

fn ok(host: Host, target: &str) -> Value {
    let (status, body) = get(host, target);
    assert_eq!(status, StatusCode::OK, "{target}: {body}");
    body
}

// R-S23: what is not written yet, what is written, and what an earlier process wrote are one list.
#[test]
fn memory_and_store_are_one_list() {
    let (host, shelf) = with_shelf();
    for id in ["two", "one"] {
        shelf.put(StoredRecord::from(&record(&host, id)));
    }
    shelf.put(of_another_boot(&host, "two", "long-ago"));
    let body = ok(host, "/admin/api/operations");
    assert_eq!(ids(&body), ["four", "three", "two", "one", "long-ago"]);
    assert_eq!(
        (&body["store"], &body["next"]),
        (&"ok".into(), &Value::Null)
    );
}

// R-L1
#[test]
fn memory_knows_better_than_a_row_that_is_behind() {
    let behind = || {
        let (host, shelf) = with_shelf();
        shelf.put(in_state(
            StoredRecord::from(&record(&host, "two")),
            "pending",
        ));
        host
    };
    let all = ok(behind(), "/admin/api/operations");
    assert_eq!(ids(&all), ["four", "three", "two", "one"]);
    assert_eq!(all["operations"][2]["state"], "succeeded");
    let pending = ok(behind(), "/admin/api/operations?state=pending");
    assert_eq!(ids(&pending), [""; 0]);
    let one = ok(behind(), "/admin/api/operations/two");
    assert_eq!(one["operation"]["state"], "succeeded");
}

#[test]
fn pages_follow_each_other() {
    let mut next = String::new();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let (host, shelf) = with_shelf();
        for id in ["one", "two", "three"] {
            shelf.put(StoredRecord::from(&record(&host, id)));
        }
        shelf.put(of_another_boot(&host, "one", "long-ago"));
        let body = ok(host, &format!("/admin/api/operations?limit=2{next}"));
        seen.extend(ids(&body).into_iter().map(str::to_owned));
        match body["next"].as_str() {
            Some(cursor) => next = format!("&before={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ["four", "three", "two", "one", "long-ago"]);
    let (status, body) = get(host(), "/admin/api/operations?before=bm90LWE");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`next`")
    );
}

// R-L7: a store that is down takes nothing from what memory knows.
#[test]
fn without_the_store_memory_answers_and_says_so() {
    let down = || {
        let (host, shelf) = with_shelf();
        shelf.is_down.store(true, Ordering::SeqCst);
        host
    };
    let body = ok(down(), "/admin/api/operations?limit=3");
    assert_eq!(ids(&body), ["four", "three", "two"]);
    assert_eq!(body["store"], "unavailable");
    assert!(body["next"].is_string());
    assert_eq!(
        ok(down(), "/admin/api/operations/two")["store"],
        "unavailable"
    );
    for path in [
        "/admin/api/operations/long-ago",
        "/admin/api/operations/sums",
    ] {
        let (status, body) = get(down(), path);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(body["error"]["code"], "store_unavailable");
    }
    assert_eq!(ok(host(), "/admin/api/operations")["store"], "off");
}

#[test]
fn one_operation_is_found_by_its_id() {
    let (one, shelf) = with_shelf();
    let twin = renamed("two", "earlier", 2);
    shelf.put(of_another_boot(&one, "two", &twin));
    let body = ok(one, "/admin/api/operations/tw%6f");
    let operation = &body["operation"];
    assert_eq!(operation["operation_id"], "two");
    assert_eq!(operation["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(operation["attempts"][0]["target"], "primary");
    assert_eq!((&body["others"], &body["store"]), (&1.into(), &"ok".into()));
    let (status, body) = get(host(), "/admin/api/operations/nobody");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(body["error"]["code"], "not_found");
    for (path, status) in [
        ("/admin/api/operations/two?x=1", StatusCode::BAD_REQUEST),
        ("/admin/api/operations/%zz", StatusCode::BAD_REQUEST),
        ("/admin/api/operations/two/attempts", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(host(), path).0, status, "{path}");
    }
}

#[test]
fn sums_come_from_the_store() {
    let (host, shelf) = with_shelf();
    for id in ["one", "two", "three"] {
        shelf.put(StoredRecord::from(&record(&host, id)));
    }
    let body = ok(host, "/admin/api/operations/sums?by=route&since=2023-01-01");
    let sums = body["sums"].as_array().unwrap();
    assert_eq!(sums.len(), 2);
    assert_eq!(
        (&sums[0]["group"], &sums[0]["rows"], &sums[0]["sends"]),
        (&"gpt".into(), &2.into(), &3.into())
    );
    assert_eq!(sums[0]["by"], "route");
    let check = |target: &str, status, says: &str| {
        let (found, body) = get(crate::admin::host(), target);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            found == status && message.contains(says),
            "{target}: {found} {message}"
        );
    };
    check(
        "/admin/api/operations/sums?by=model",
        StatusCode::BAD_REQUEST,
        "route, target, key, state",
    );
    check(
        "/admin/api/operations/sums?limit=3",
        StatusCode::BAD_REQUEST,
        "allowed: by, since",
    );
    check(
        "/admin/api/operations/sums?since=yesterday",
        StatusCode::BAD_REQUEST,
        "1h",
    );
    check(
        "/admin/api/operations/sums",
        StatusCode::NOT_FOUND,
        "ledger.store is off",
    );
}
