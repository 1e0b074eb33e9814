//! One story, told three ways: what the client saw, the admin API and `rondo ledger` on the file, while the gateway runs and after.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::ledger_cli::{Folder, ledger, objects};
use crate::support::client::{ask, call, chat};
use crate::support::database::fresh;
use crate::support::process::{Process, config};
use crate::support::soon;

fn yaml(store: &str) -> String {
    format!(
        r#"
providers:
  one: {{ adapter: openai, keys: [{{ name: main, secret: {{ literal: sk-shown-to-nobody }} }}], mock: {{ answers: [{{ preset: openai.throttle, retry_after: 30 }}] }} }}
  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes:
  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}] }}
  - {{ name: alone, models: [n], targets: [{{ name: only, provider: one }}], routing: {{ sticky_key_attempts: 1, max_upstream_sends: 1 }} }}
ledger: {{ path: '{store}' }}
"#
    )
}

async fn get(process: &Process, path: &str) -> Value {
    let answer = ask(process.admin, "GET", path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    assert!(!answer.text().contains("sk-shown-to-nobody"), "{path}");
    answer.json()
}

/// Asks until the answer holds what is waited for.
async fn until_told(process: &Process, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    soon(async {
        loop {
            let told = get(process, path).await;
            if holds(&told) {
                return told;
            }
        }
    })
    .await
}

/// Waits until the store has as many operations, all of them ended. A store that is opened behind the requests is not there at once.
async fn until_written(process: &Process, count: u64) {
    let path = "/admin/api/operations/sums?by=state";
    soon(async {
        while ask(process.admin, "GET", path).await.status == 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    until_told(process, path, |told| {
        let sums = told["sums"].as_array().unwrap();
        let rows = sums.iter().map(|sum| sum["rows"].as_u64().unwrap());
        sums.iter().all(|sum| sum["group"] != "pending") && rows.sum::<u64>() == count
    })
    .await;
}

// R-S23 R-L1 R-X2
#[tokio::test]
async fn the_admin_api_and_the_command_line_tell_the_same() {
    let folder = Folder::new();
    let store = folder.file("rondo.db");
    tell_the_same(&store, &yaml(&store)).await;
}

// R-S23 R-L1 R-X2
#[tokio::test]
async fn they_tell_the_same_of_postgresql() {
    let folder = Folder::new();
    let url = spawn_blocking(fresh).await.unwrap();
    let secret = folder.file("url");
    std::fs::write(&secret, &url).unwrap();
    let here = yaml(&folder.file("unused.db"));
    let (rest, _) = here.split_once("ledger:").unwrap();
    let state = folder.file("state");
    let ledger = format!(
        "ledger: {{ store: postgres, url: {{ file: '{secret}' }}, state_dir: '{state}' }}\n"
    );
    tell_the_same(&url, &format!("{rest}{ledger}")).await;
}

async fn tell_the_same(store: &str, yaml: &str) {
    let process = Process::start("", yaml).await;
    let mut told = BTreeMap::new();
    for model in ["m", "n", "m"] {
        let answer = call(process.addr, chat(model)).await;
        let id = answer.header("x-request-id").unwrap().to_owned();
        // Visible at once, written or not.
        let path = format!("/admin/api/operations/{id}");
        let seen = until_told(&process, &path, |told| {
            told["operation"]["state"] != "pending"
        })
        .await;
        assert_eq!(seen["operation"]["http_status"], answer.status.as_u16());
        told.insert(id, seen["operation"].clone());
    }
    until_written(&process, 3).await;
    for (id, operation) in &told {
        let shown = objects(&ledger(store, &["show", id, "--json"]));
        assert_eq!(&shown, std::slice::from_ref(operation));
    }
    let listed = get(&process, "/admin/api/operations").await;
    assert_eq!(listed["store"], "ok");
    let recent = objects(&ledger(store, &["recent", "--json"]));
    assert_eq!(listed["operations"].as_array(), Some(&recent));
    let sums = get(&process, "/admin/api/operations/sums?by=target").await;
    let summed = objects(&ledger(store, &["sum", "--by", "target", "--json"]));
    assert_eq!(sums["sums"].as_array(), Some(&summed));
    let groups: Vec<_> = summed.iter().map(|sum| &sum["group"]).collect();
    assert_eq!(groups, ["first", "only", "second"]);
}

/// Pages through the admin API, with a new operation before each further page.
async fn pages(process: &Process, filter: &str) -> Vec<String> {
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = get(
            process,
            &format!("/admin/api/operations?limit=20{filter}{before}"),
        )
        .await;
        assert_eq!(page["store"], "ok");
        let operations = page["operations"].as_array().unwrap();
        let ids = operations
            .iter()
            .map(|one| one["operation_id"].as_str().unwrap());
        seen.extend(ids.map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return seen,
        }
        assert_eq!(call(process.addr, chat("m")).await.status, 200);
    }
}

/// Of 250 operations one half is in memory and the store, the other of an earlier process in the store alone.
// R-S23 R-L6
#[tokio::test]
async fn paging_sees_each_of_250_operations_once_while_new_ones_arrive() {
    let folder = Folder::new();
    let store = folder.file("rondo.db");
    let mut process = Process::start("", &yaml(&store)).await;
    let (addr, admin, file) = (process.addr, process.admin, process.file.clone());
    let mut made = BTreeSet::new();
    let serve = async |process: &Process, made: &mut BTreeSet<String>| {
        for _ in 0..125 {
            let answer = call(process.addr, chat("m")).await;
            assert!(made.insert(answer.header("x-request-id").unwrap().to_owned()));
        }
    };
    serve(&process, &mut made).await;
    process.signal("TERM");
    assert!(process.ended().await.success());
    drop(process);
    std::fs::write(&file, config(addr, admin, "", &yaml(&store))).unwrap();
    let process = Process::launch(file, addr, admin, &[]);
    process.until_accepting(true).await;
    crate::support::until(|| std::net::TcpStream::connect(admin).is_ok()).await;
    serve(&process, &mut made).await;
    assert_eq!(made.len(), 250);

    for filter in ["", "&state=succeeded", "&route=chat&target=second"] {
        let seen = pages(&process, filter).await;
        let unique: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "twice, with {filter:?}");
        let missed: Vec<_> = made.difference(&unique).collect();
        assert!(missed.is_empty(), "{missed:?} with {filter:?}");
    }

    let (mut seen, mut arguments) = (Vec::new(), vec!["recent".to_owned(), "--json".to_owned()]);
    loop {
        let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = ledger(&store, &given);
        let found = objects(&output);
        seen.extend(
            found
                .iter()
                .map(|one| one["operation_id"].as_str().unwrap().to_owned()),
        );
        let said = String::from_utf8(output.stderr).unwrap();
        let Some(next) = said.trim().strip_prefix("next: ") else {
            break;
        };
        arguments.truncate(2);
        arguments.extend(["--before".to_owned(), next.to_owned()]);
        assert_eq!(call(process.addr, chat("m")).await.status, 200);
    }
    let unique: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len());
    // The last few may not have been written when it began.
    assert!(made.difference(&unique).count() <= 20);
}
