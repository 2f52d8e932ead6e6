//! Statistics of the last hour, so that the office's health can be seen without Prometheus.
//!
//! Requests increment counters (one atomic addition each); every few seconds a background job appends the difference to
//! a buffer of fixed size.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use amb_store::{NewWakeUps, OfficeSize};
use parking_lot::Mutex;

use crate::app::App;
use crate::jobs::failed;

/// How often a sample is taken.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Samples of an hour.
const CAPACITY: usize = 360;
/// Upper bounds of the latency buckets, in microseconds; the last bucket has none.
const BOUNDS: [u64; 15] =
    [100, 200, 400, 800, 1_500, 3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// Counters since the process started.
#[derive(Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    sends: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    latencies: [AtomicU64; BOUNDS.len() + 1],
    /// The longest time since the last sample that an entry waited to be sent over a WebSocket, in microseconds.
    lag: AtomicU64,
    /// Wake-ups by result: rung, held, failed.
    wake_ups: [AtomicU64; 3],
}

impl Counters {
    /// Records how long the first of several entries waited to be sent over a WebSocket.
    pub(crate) fn pushed(&self, waited: Duration) {
        self.lag.fetch_max(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

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
            if let Some(counter) = self.latencies.get(at) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The statistics of one interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    /// This and the next three are counts a second.
    pub(super) requests: f64,
    pub(super) sends: f64,
    pub(super) failed: f64,
    pub(super) refused: f64,
    /// Percentiles of the latency, in milliseconds.
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    /// The longest time that an entry waited to be sent over a WebSocket, in milliseconds.
    pub(super) lag: f64,
    /// Wake-ups by result: rung, held, failed.
    pub(super) wake_ups: [u64; 3],
    pub(super) sockets: f64,
    pub(super) replicas: f64,
    pub(super) size: OfficeSize,
}

/// The values of the counters at the last sample.
#[derive(Default)]
struct Last {
    requests: u64,
    sends: u64,
    failed: u64,
    refused: u64,
    latencies: [u64; BOUNDS.len() + 1],
    wake_ups: [u64; 3],
}

/// The statistics of the last hour.
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) counters: Counters,
    samples: Mutex<(Last, VecDeque<Sample>)>,
}

/// Takes samples until the office closes.
pub(crate) async fn sample(app: App) {
    let mut size = OfficeSize::default();
    while app.closing.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        match app.store.size().await {
            Ok(now) => size = now,
            Err(error) => failed("size of the office", &error),
        }
        let (sockets, replicas) = (app.hub.count() as f64, f64::from(app.replicas.count()));
        app.stats.sample(sockets, replicas, size);
    }
}

/// Returns the increase of a counter since the last call.
fn increase(counter: &AtomicU64, last: &mut u64) -> u64 {
    let now = counter.load(Ordering::Relaxed);
    now - std::mem::replace(last, now)
}

/// [`increase`] of several counters.
fn increases<const N: usize>(counters: &[AtomicU64; N], last: &mut [u64; N]) -> [u64; N] {
    std::array::from_fn(|index| increase(&counters[index], &mut last[index]))
}

impl Stats {
    /// Takes a sample of the counters and of these values.
    fn sample(&self, sockets: f64, replicas: f64, size: OfficeSize) {
        let mut state = self.samples.lock();
        let (last, samples) = &mut *state;
        let counters = &self.counters;
        let rate = |counter: &AtomicU64, last: &mut u64| increase(counter, last) as f64 / INTERVAL.as_secs_f64();
        let latencies = increases(&counters.latencies, &mut last.latencies);
        let sample = Sample {
            requests: rate(&counters.requests, &mut last.requests),
            sends: rate(&counters.sends, &mut last.sends),
            failed: rate(&counters.failed, &mut last.failed),
            refused: rate(&counters.refused, &mut last.refused),
            p50: percentile(&latencies, 0.50),
            p95: percentile(&latencies, 0.95),
            p99: percentile(&latencies, 0.99),
            lag: counters.lag.swap(0, Ordering::Relaxed) as f64 / 1_000.0,
            wake_ups: increases(&counters.wake_ups, &mut last.wake_ups),
            sockets,
            replicas,
            size,
        };
        if samples.len() >= CAPACITY {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// All samples, oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().1.iter().copied().collect()
    }
}

/// Returns a percentile of the latency in milliseconds: the upper bound of its bucket.
fn percentile(latencies: &[u64], part: f64) -> f64 {
    let total: u64 = latencies.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let wanted = (total as f64 * part).ceil() as u64;
    let mut count = 0;
    for (at, some) in latencies.iter().enumerate() {
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

    fn sample(stats: &Stats) {
        stats.sample(0.0, 1.0, OfficeSize::default());
    }

    #[test]
    fn a_sample_has_the_increase_since_the_previous_one() {
        let stats = Stats::default();
        for _ in 0..99 {
            stats.counters.answered("/messages/send", 201, Duration::from_micros(300));
        }
        stats.counters.answered("/inbox", 500, Duration::from_millis(40));
        stats.counters.answered("/events", 200, Duration::from_secs(30));
        [3, 7, 5].into_iter().for_each(|millis| stats.counters.pushed(Duration::from_millis(millis)));
        stats.counters.wake_ups(NewWakeUps { rung: 3, held: 1, failed: 2 });
        sample(&stats);
        sample(&stats);
        let samples = stats.samples();
        assert_eq!((samples[0].wake_ups, samples[1].wake_ups), ([3, 1, 2], [0; 3]));
        assert_eq!((samples[0].lag, samples[1].lag), (7.0, 0.0), "the longest");
        assert_eq!((samples[0].sends, samples[0].failed, samples[0].requests), (9.9, 0.1, 10.1));
        assert_eq!((samples[0].p50, samples[0].p99), (0.4, 0.4));
        assert_eq!((samples[1].sends, samples[1].p99), (0.0, 0.0));
    }

    #[test]
    fn the_number_of_samples_is_bounded() {
        let stats = Stats::default();
        (0..2 * CAPACITY).for_each(|_| sample(&stats));
        assert_eq!(stats.samples().len(), CAPACITY);
    }
}
