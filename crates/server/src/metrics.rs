//! Prometheus metrics. Handles are created once, so that counting is one atomic addition. The recorder belongs to this
//! office alone, so that several can run in one process.

use std::time::Duration;

use amb_core::Usage;
use amb_store::NewWakeUps;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::routes::PATHS;

/// Label of every path that is not a route of the API.
const OTHER: &str = "other";

/// Statuses with a counter of their own.
const STATUSES: &[u16] =
    &[101, 200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 426, 429, 500, 503, 507];

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub(crate) struct Metrics {
    handle: PrometheusHandle,
    /// In the order of [`PATHS`].
    routes: Vec<RouteMetrics>,
    other: RouteMetrics,
    /// Open WebSockets.
    pub(crate) sockets: Gauge,
    /// Processes on this database, including this one.
    pub(crate) replicas: Gauge,
    stored_messages: Gauge,
    stored_bytes: Gauge,
    /// Entries sent over WebSockets.
    pub(crate) pushed: Counter,
    /// WebSockets closed because their client read too slowly.
    pub(crate) slow: Counter,
    /// Messages removed by the retention of read mail.
    pub(crate) mail_removed: Counter,
    /// Wake-ups by result: rung, held, failed.
    wake_ups: [Counter; 3],
}

struct RouteMetrics {
    statuses: Vec<Counter>,
    other: Counter,
    seconds: Histogram,
}

const METADATA: Metadata<'static> = Metadata::new("amb_server", Level::INFO, Some(module_path!()));

fn counter(recorder: &PrometheusRecorder, name: &'static str, labels: Vec<Label>) -> Counter {
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new();
        // Fails only for an empty list of buckets; then histograms become summaries.
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let describe = |name: &'static str, text: &'static str| {
            recorder.describe_counter(KeyName::from(name), Some(Unit::Count), text.into());
        };
        let gauge = |name: &'static str, unit: Unit, text: &'static str| {
            recorder.describe_gauge(KeyName::from(name), Some(unit), text.into());
            recorder.register_gauge(&Key::from_name(name), &METADATA)
        };
        describe("amb_http_requests_total", "Requests by route and status.");
        describe("amb_events_pushed_total", "Entries sent over WebSockets.");
        describe("amb_ws_cut_off_total", "WebSockets cut off because they did not take what was sent.");
        describe("amb_mail_removed_total", "Messages removed because everybody read them long ago.");
        describe("amb_wakeups_total", "Wake-ups of clients by result, as the processes that ring report them.");
        recorder.describe_histogram(
            KeyName::from("amb_http_request_seconds"),
            Some(Unit::Seconds),
            "Time from the head of a request to the head of its answer.".into(),
        );
        let route = |route: &'static str| {
            let by = |status: String| {
                counter(
                    &recorder,
                    "amb_http_requests_total",
                    vec![Label::new("route", route), Label::new("status", status)],
                )
            };
            let key = Key::from_parts("amb_http_request_seconds", vec![Label::new("route", route)]);
            RouteMetrics {
                statuses: STATUSES.iter().map(|status| by(status.to_string())).collect(),
                other: by("other".to_owned()),
                seconds: recorder.register_histogram(&key, &METADATA),
            }
        };
        Self {
            routes: PATHS.iter().map(|path| route(path)).collect(),
            other: route(OTHER),
            sockets: gauge("amb_ws_sockets", Unit::Count, "Open WebSockets."),
            replicas: gauge("amb_replicas", Unit::Count, "Processes on this database, this one among them."),
            stored_messages: gauge(
                "amb_stored_messages",
                Unit::Count,
                "Messages and lines of transcripts that all agents have stored.",
            ),
            stored_bytes: gauge("amb_stored_bytes", Unit::Bytes, "Bytes of what they say."),
            pushed: counter(&recorder, "amb_events_pushed_total", vec![]),
            slow: counter(&recorder, "amb_ws_cut_off_total", vec![]),
            mail_removed: counter(&recorder, "amb_mail_removed_total", vec![]),
            wake_ups: ["rung", "held", "failed"]
                .map(|result| counter(&recorder, "amb_wakeups_total", vec![Label::new("result", result)])),
            handle: recorder.handle(),
        }
    }

    /// Counts one answered request.
    pub(crate) fn answered(&self, path: &str, status: u16, took: Duration) {
        let route = route_of(path).and_then(|index| self.routes.get(index)).unwrap_or(&self.other);
        match STATUSES.iter().position(|known| *known == status).and_then(|at| route.statuses.get(at)) {
            Some(counter) => counter.increment(1),
            None => route.other.increment(1),
        }
        route.seconds.record(took.as_secs_f64());
    }

    pub(crate) fn wake_ups(&self, new: NewWakeUps) {
        for (counter, count) in self.wake_ups.iter().zip([new.rung, new.held, new.failed]) {
            counter.increment(count);
        }
    }

    /// Sets the amount of stored mail.
    pub(crate) fn stored(&self, usage: Usage) {
        self.stored_messages.set(usage.messages as f64);
        self.stored_bytes.set(usage.bytes as f64);
    }

    /// Renders all metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded latencies into their buckets; without it they use memory until the next scrape.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// Returns the index in [`PATHS`] of the route that a path matches.
fn route_of(path: &str) -> Option<usize> {
    let fits = |route: &str| {
        let (mut theirs, mut ours) = (path.split('/'), route.split('/'));
        loop {
            match (theirs.next(), ours.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a == b || b.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    // An exact match first: `/agents/me` also matches `/agents/{name}`.
    PATHS.iter().position(|route| *route == path).or_else(|| PATHS.iter().position(|route| fits(route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_labelled_with_its_route_without_ids() {
        let label = |path| route_of(path).map(|index| PATHS[index]);
        assert_eq!(label("/inbox"), Some("/inbox"));
        assert_eq!(label("/agents/me"), Some("/agents/me"));
        assert_eq!(label("/sessions/0190/history"), Some("/sessions/{session_id}/history"));
        assert_eq!(label("/sessions/0190/history/x"), None);
        assert_eq!(label("/secret"), None);
    }

    #[test]
    fn counted_requests_are_rendered() {
        let metrics = Metrics::new();
        metrics.answered("/inbox", 200, Duration::from_millis(3));
        metrics.sockets.increment(1.0);
        let text = metrics.render();
        assert!(text.contains(r#"amb_http_requests_total{route="/inbox",status="200"} 1"#), "{text}");
        assert!(text.contains(r#"amb_http_request_seconds_bucket{route="/inbox",le="0.005"} 1"#), "{text}");
        assert!(text.contains("amb_ws_sockets 1"), "{text}");
    }
}
