//! A PostgreSQL for tests: one for all of them, with a schema for each; and private ones that may be stopped.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rondo::store::postgres::{Bounds, PostgresReader, PostgresStore, Target};
use tokio_postgres::{Client, NoTls};

/// A cluster of its own. It ends when its input does, so with this value or with the process of the tests.
pub struct Cluster {
    pub url: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// On a Unix socket alone.
    pub fn start() -> Cluster {
        Cluster::serve(&[])
    }

    /// Also on loopback, with TLS by this certificate and key.
    pub fn with_tls(certificate: &Path, key: &Path) -> Cluster {
        let files = [certificate, key].map(|file| file.to_str().unwrap());
        Cluster::serve(&["--tls", files[0], files[1]])
    }

    fn serve(flags: &[&str]) -> Cluster {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/postgres");
        let mut child = Command::new(script)
            .arg("serve")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = answers.next().expect("PostgreSQL did not start").unwrap();
        let url = first.strip_prefix("url ").unwrap().to_owned();
        Cluster {
            url,
            child,
            orders,
            answers,
        }
    }

    /// Ends the server as a crash would.
    pub fn stop(&mut self) {
        self.order("stop", "stopped");
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        self.order("start", "started");
    }

    /// Freezes it: connections stand and nothing answers.
    pub fn pause(&mut self) {
        self.order("pause", "paused");
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.order("resume", "resumed");
    }

    fn order(&mut self, order: &str, wanted: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let answer = self.answers.next().expect("an answer").unwrap();
        assert_eq!(answer, wanted);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// The URL of the cluster that tests share: the one they were given, or one that lasts as long as this process.
fn shared() -> &'static str {
    static GIVEN: OnceLock<String> = OnceLock::new();
    static OWN: OnceLock<std::sync::Mutex<Cluster>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        std::env::var("RONDO_TEST_POSTGRES").unwrap_or_else(|_| {
            let cluster = OWN.get_or_init(|| std::sync::Mutex::new(Cluster::start()));
            cluster.lock().unwrap().url.clone()
        })
    })
}

/// The URL of an empty schema of the shared cluster.
pub fn fresh() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let schema = format!("t{}_{number}", std::process::id());
    sql(
        shared(),
        &format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"),
    );
    in_schema(shared(), &schema)
}

/// The URL with another search path.
pub fn in_schema(url: &str, schema: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}options=-c%20search_path%3D{schema}")
}

pub fn target(url: &str) -> Target {
    Target::parse(url, Bounds::USUAL).unwrap()
}

pub fn store(url: &str) -> PostgresStore {
    PostgresStore::new(target(url))
}

pub fn reader(url: &str) -> PostgresReader {
    PostgresReader::new(&target(url)).unwrap()
}

/// Runs statements on a connection of its own.
pub fn sql(url: &str, statements: &str) {
    with_client(url, async |client| {
        client.batch_execute(statements).await.unwrap();
    });
}

/// The one number that a statement gives.
pub fn number(url: &str, statement: &str) -> i64 {
    with_client(url, async |client| {
        client.query_one(statement, &[]).await.unwrap().get(0)
    })
}

/// The texts of one column.
pub fn texts(url: &str, statement: &str) -> Vec<String> {
    with_client(url, async |client| {
        let rows = client.query(statement, &[]).await.unwrap();
        rows.iter()
            .map(|row| row.get::<_, Option<String>>(0).unwrap_or_default())
            .collect()
    })
}

fn with_client<T: Send>(url: &str, work: impl AsyncFnOnce(&Client) -> T + Send) -> T {
    // A thread of its own: the test may be on a runtime already.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
                tokio::spawn(connection);
                work(&client).await
            })
        });
        asked.join().unwrap()
    })
}
