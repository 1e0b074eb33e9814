//! Reads of the store, off the admin plane's own thread: few at a time, each within a time limit.
//!
//! Invariant: a read that hangs holds one of the places until it comes back, so a store that hangs costs [`READS_MAX`] threads of the
//! admin plane and nothing of the data plane.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Reads at a time: the page asks for one every two seconds, and a few people and scripts may look.
const READS_MAX: usize = 4;
/// Longest time for a place and a read together. Whoever looks would rather see what memory has than wait on.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// The places for reads.
#[derive(Debug, Clone)]
pub(super) struct Readings(Arc<Semaphore>);

impl Default for Readings {
    fn default() -> Readings {
        Readings(Arc::new(Semaphore::new(READS_MAX)))
    }
}

impl Readings {
    /// What `read` gives, on a thread where it may block; `None` when it takes too long, or broke off.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let places = Arc::clone(&self.0);
        let reading = async {
            let place = places.acquire_owned().await.ok()?;
            let task = tokio::task::spawn_blocking(move || {
                let _place = place;
                read()
            });
            task.await.ok()
        };
        timeout(READ_TIME_MAX, reading).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;

    /// Reads that hang keep their places, and whoever comes after them is told within the time limit; afterwards all is as before.
    #[test]
    fn reads_that_hang_are_bounded_in_number_and_time() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let Ok(runtime) = runtime else {
            unreachable!("a runtime is built")
        };
        runtime.block_on(async {
            let readings = Readings::default();
            let mut releases = Vec::new();
            let mut hanging = Vec::new();
            for _ in 0..READS_MAX {
                let (release, held) = mpsc::channel::<()>();
                releases.push(release);
                let readings = readings.clone();
                hanging.push(tokio::spawn(async move {
                    readings.run(move || held.recv().is_err()).await
                }));
            }
            while readings.0.available_permits() > 0 {
                yield_now().await;
            }
            advance(READ_TIME_MAX).await;
            for task in hanging {
                assert_eq!(task.await.ok(), Some(None), "given up");
            }
            assert_eq!(readings.0.available_permits(), 0, "the reads still hang");
            // The clock stands still while a thread is busy, so it is moved once the read waits.
            let (late, ()) = tokio::join!(readings.run(|| 1), advance(READ_TIME_MAX));
            assert_eq!(late, None, "no place in time");
            drop(releases);
            let all = u32::try_from(READS_MAX).unwrap_or_default();
            assert!(readings.0.acquire_many(all).await.is_ok(), "all came back");
            assert_eq!(readings.run(|| 1).await, Some(1));
        });
    }
}
