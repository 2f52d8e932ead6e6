//! The office's own figures over the last hour, so that its health can be seen without Prometheus.
//!
//! Counters are added to on the path of a request (one atomic addition each); every few seconds a background job takes the
//! difference and puts it into a ring of fixed size.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use amb_store::{NewWakeUps, OfficeSize};
use parking_lot::Mutex;

use crate::app::App;
use crate::jobs::failed;

/// How often a sample is taken.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Samples that are kept: an hour.
const KEPT: usize = 360;
/// Upper bounds of the times that requests took, in microseconds; the last one has none.
const BOUNDS: [u64; 15] =
    [100, 200, 400, 800, 1_500, 3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// Counters since the process began.
#[derive(Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    sends: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    took: [AtomicU64; BOUNDS.len() + 1],
    /// The longest that an entry waited for its WebSocket since the last sample, in microseconds.
    lag: AtomicU64,
    /// Wake-ups that were rung, held and failed.
    wake_ups: [AtomicU64; 3],
}

impl Counters {
    /// Entries were sent over a WebSocket, the first of them this long after it was written.
    pub(crate) fn pushed(&self, waited: Duration) {
        self.lag.fetch_max(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts wake-ups that were reported.
    pub(crate) fn wake_ups(&self, new: NewWakeUps) {
        for (counter, count) in self.wake_ups.iter().zip([new.rung, new.held, new.failed]) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts one answered request. Long polls and streams are left out of the latencies.
    pub(crate) fn answered(&self, path: &str, status: u16, took: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if path == "/messages/send" && status == 201 {
            self.sends.fetch_add(1, Ordering::Relaxed);
        }
        match status {
            500.. => self.failed.fetch_add(1, Ordering::Relaxed),
            400.. => self.refused.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        if !matches!(path, "/events" | "/ws" | "/dashboard/events") && !path.starts_with("/transcripts/") {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let at = BOUNDS.partition_point(|bound| *bound < micros);
            if let Some(counter) = self.took.get(at) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The figures of one interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RingSample {
    /// A second.
    pub(super) requests: f64,
    pub(super) sends: f64,
    pub(super) failed: f64,
    pub(super) refused: f64,
    /// Percentiles of the time to answer, in milliseconds.
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    /// Milliseconds that an entry waited at most for its WebSocket.
    pub(super) lag: f64,
    /// Wake-ups that were rung, held and failed in the interval.
    pub(super) wake_ups: [u64; 3],
    pub(super) sockets: f64,
    pub(super) replicas: f64,
    pub(super) size: OfficeSize,
}

/// What was counted at the last sample.
#[derive(Default)]
struct Last {
    requests: u64,
    sends: u64,
    failed: u64,
    refused: u64,
    took: [u64; BOUNDS.len() + 1],
    wake_ups: [u64; 3],
}

/// The last hour.
#[derive(Default)]
pub(crate) struct Ring {
    pub(crate) counters: Counters,
    kept: Mutex<(Last, VecDeque<RingSample>)>,
}

/// Values that are read when a sample is taken.
struct Observed {
    sockets: f64,
    replicas: f64,
    size: OfficeSize,
}

/// Takes samples until the office closes.
pub(crate) async fn sample(app: App) {
    let mut size = OfficeSize::default();
    while app.closing.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        match app.store.size().await {
            Ok(now) => size = now,
            Err(error) => failed("the size of the office", &error),
        }
        let (sockets, replicas) = (app.hub.count() as f64, f64::from(app.replicas.count()));
        app.ring.sample(Observed { sockets, replicas, size });
    }
}

impl Ring {
    /// Takes a sample of what was counted since the last one.
    fn sample(&self, seen: Observed) {
        let mut kept = self.kept.lock();
        let (last, samples) = &mut *kept;
        let seconds = INTERVAL.as_secs_f64();
        let since = |counter: &AtomicU64, last: &mut u64| {
            let now = counter.load(Ordering::Relaxed);
            let count = now - *last;
            *last = now;
            count
        };
        let counters = &self.counters;
        let mut took = [0; BOUNDS.len() + 1];
        for ((took, counter), last) in took.iter_mut().zip(&counters.took).zip(&mut last.took) {
            *took = since(counter, last);
        }
        let mut wake_ups = [0; 3];
        for ((count, counter), last) in wake_ups.iter_mut().zip(&counters.wake_ups).zip(&mut last.wake_ups) {
            *count = since(counter, last);
        }
        let sample = RingSample {
            requests: since(&counters.requests, &mut last.requests) as f64 / seconds,
            sends: since(&counters.sends, &mut last.sends) as f64 / seconds,
            failed: since(&counters.failed, &mut last.failed) as f64 / seconds,
            refused: since(&counters.refused, &mut last.refused) as f64 / seconds,
            p50: within(&took, 0.50),
            p95: within(&took, 0.95),
            p99: within(&took, 0.99),
            lag: counters.lag.swap(0, Ordering::Relaxed) as f64 / 1_000.0,
            wake_ups,
            sockets: seen.sockets,
            replicas: seen.replicas,
            size: seen.size,
        };
        if samples.len() >= KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// All samples, oldest first.
    pub(super) fn samples(&self) -> Vec<RingSample> {
        self.kept.lock().1.iter().copied().collect()
    }
}

/// Milliseconds within which this part of the requests was answered, by the bound of its bucket.
fn within(took: &[u64], part: f64) -> f64 {
    let total: u64 = took.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let wanted = (total as f64 * part).ceil() as u64;
    let mut count = 0;
    for (at, some) in took.iter().enumerate() {
        count += some;
        if count >= wanted {
            let bound = BOUNDS.get(at).or(BOUNDS.last()).copied().unwrap_or(0);
            return bound as f64 / 1_000.0;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Observed {
        Observed { sockets: 0.0, replicas: 1.0, size: OfficeSize::default() }
    }

    #[test]
    fn a_sample_holds_what_happened_since_the_one_before() {
        let ring = Ring::default();
        for _ in 0..99 {
            ring.counters.answered("/messages/send", 201, Duration::from_micros(300));
        }
        ring.counters.answered("/inbox", 500, Duration::from_millis(40));
        ring.counters.answered("/events", 200, Duration::from_secs(30));
        [3, 7, 5].into_iter().for_each(|millis| ring.counters.pushed(Duration::from_millis(millis)));
        ring.counters.wake_ups(NewWakeUps { rung: 3, held: 1, failed: 2 });
        ring.sample(nothing());
        ring.sample(nothing());
        let samples = ring.samples();
        assert_eq!((samples[0].wake_ups, samples[1].wake_ups), ([3, 1, 2], [0; 3]));
        assert_eq!((samples[0].lag, samples[1].lag), (7.0, 0.0), "the longest");
        assert_eq!((samples[0].sends, samples[0].failed, samples[0].requests), (9.9, 0.1, 10.1));
        assert_eq!((samples[0].p50, samples[0].p99), (0.4, 0.4));
        assert_eq!((samples[1].sends, samples[1].p99), (0.0, 0.0));
    }

    #[test]
    fn the_ring_does_not_grow() {
        let ring = Ring::default();
        (0..2 * KEPT).for_each(|_| ring.sample(nothing()));
        assert_eq!(ring.samples().len(), KEPT);
    }
}
