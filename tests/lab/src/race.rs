//! Work while something else runs in a loop.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `repeat` in a loop in another thread while `work` runs. Ends also if `work` panics: otherwise a test that fails
/// would not end.
///
/// # Panics
/// If `work` or `repeat` panics.
pub fn meanwhile<T>(repeat: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let repeating = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                repeat();
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        repeating.join().unwrap_or_else(|panic| resume_unwind(panic));
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Containers of the whole test.
const WHOLE: usize = 100;

/// How many containers come and go, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// The number of containers.
    pub containers: usize,
    /// How many of them start and stop concurrently.
    pub workers: usize,
    /// How long the race lasts at least. `None`: each container comes once.
    pub least: Option<Duration>,
}

impl Race {
    /// The whole test, of a hundred containers, if an environment variable has its seconds. Else a sample, in which each container comes once.
    pub fn of(variable: &str, sample: usize, workers: usize) -> Self {
        let least = env::var(variable).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Self { containers: if least.is_some() { WHOLE } else { sample }, workers, least }
    }

    /// Runs `collect` in a loop, and meanwhile `live` for each container. Its arguments are the container's number and its round.
    ///
    /// # Panics
    /// If one of them panics.
    pub fn run(&self, collect: impl Fn() + Sync, live: impl Fn(usize, usize) + Sync) {
        let (runs, started, live) = (AtomicUsize::new(0), Instant::now(), &live);
        let collect = || {
            collect();
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let worker = |first: usize| {
            move || {
                for round in 0.. {
                    (first..self.containers).step_by(self.workers).for_each(|i| live(i, round));
                    if self.least.is_none_or(|least| started.elapsed() > least) {
                        break;
                    }
                }
            }
        };
        let outcomes: Vec<_> = meanwhile(collect, || {
            thread::scope(|scope| {
                let workers: Vec<_> = (0..self.workers).map(|first| scope.spawn(worker(first))).collect();
                workers.into_iter().map(|worker| worker.join()).collect()
            })
        });
        assert!(runs.into_inner() > 0);
        assert!(outcomes.iter().all(Result::is_ok), "a live container lost something, or a DEL failed");
    }
}
