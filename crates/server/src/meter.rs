//! What the office counts. Handles are made once, so that counting costs one atomic addition; the recorder belongs to
//! this office alone, so that several can live in one process.

use std::time::Duration;

use amb_core::Usage;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Paths as they are counted; what is none of them is `other`.
pub(crate) const ROUTES: &[&str] = &[
    "/messages/send",
    "/inbox",
    "/sessions/{session_id}/history",
    "/events",
    "/ws",
    "/agents/register",
    "/connections/request",
    "/connections/approve",
    "/agents",
    "/agents/me",
    "/agents/me/rotate-key",
    "/agents/me/heartbeat",
    "/agents/me/leave",
    "/agents/{name}",
    "/connections",
    "/connections/pending",
    "/connections/reject",
    "/connections/revoke",
    "/connections/block",
    "/connections/unblock",
    "/messages",
    "/messages/ack",
    "/messages/claim",
    "/messages/release",
    "/messages/send-many",
    "/messages/{message_id}",
    "/tasks",
    "/tasks/{task_id}",
    "/tasks/{task_id}/chain",
    "/tasks/{task_id}/state",
    "/transcripts/{key}",
    "/transcripts/{key}/share",
    "/search",
    "/export",
    "/groups",
    "/groups/{name}/invite",
    "/groups/{name}/join",
    "/groups/{name}/leave",
    "/groups/{name}/remove",
    "/health",
    "/health/live",
    "/health/ready",
    "/openapi.json",
    OTHER,
];
/// What is counted for a path that is none of them.
pub(crate) const OTHER: &str = "other";

/// Statuses that are counted each by itself.
const STATUSES: &[u16] =
    &[101, 200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 426, 429, 500, 503, 507];

/// Upper bounds of the duration's buckets, in seconds.
const BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// All counters.
pub(crate) struct Meter {
    handle: PrometheusHandle,
    routes: Vec<RouteMeter>,
    /// Open WebSockets.
    pub(crate) sockets: Gauge,
    /// Processes on this database, this one among them.
    pub(crate) replicas: Gauge,
    stored_messages: Gauge,
    stored_bytes: Gauge,
    /// Entries sent over WebSockets.
    pub(crate) pushed: Counter,
    /// WebSockets cut off because they did not take what was sent.
    pub(crate) slow: Counter,
    /// Messages removed because everybody read them long ago.
    pub(crate) mail_removed: Counter,
}

struct RouteMeter {
    statuses: Vec<Counter>,
    other: Counter,
    seconds: Histogram,
}

const METADATA: Metadata<'static> = Metadata::new("amb_server", Level::INFO, Some(module_path!()));

fn counter(recorder: &PrometheusRecorder, name: &'static str, labels: Vec<Label>) -> Counter {
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

impl Meter {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new();
        // Fails only for an empty list of buckets; then there are quantiles instead.
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let describe = |name: &'static str, text: &'static str| {
            recorder.describe_counter(KeyName::from(name), Some(Unit::Count), text.into());
        };
        describe("amb_http_requests", "Requests by route and status.");
        describe("amb_events_pushed", "Entries sent over WebSockets.");
        describe("amb_ws_cut_off", "WebSockets cut off because they did not take what was sent.");
        describe("amb_mail_removed", "Messages removed because everybody read them long ago.");
        recorder.describe_histogram(
            KeyName::from("amb_http_request_seconds"),
            Some(Unit::Seconds),
            "Time from the head of a request to the head of its answer.".into(),
        );
        recorder.describe_gauge(KeyName::from("amb_ws_sockets"), Some(Unit::Count), "Open WebSockets.".into());
        let replicas = "Processes on this database, this one among them.";
        recorder.describe_gauge(KeyName::from("amb_replicas"), Some(Unit::Count), replicas.into());
        let stored = "Messages and lines of transcripts that all agents have stored.";
        recorder.describe_gauge(KeyName::from("amb_stored_messages"), Some(Unit::Count), stored.into());
        let stored = "Bytes of what they say.";
        recorder.describe_gauge(KeyName::from("amb_stored_bytes"), Some(Unit::Bytes), stored.into());
        let route = |route: &'static str| {
            let by = |status: String| {
                counter(&recorder, "amb_http_requests", vec![Label::new("route", route), Label::new("status", status)])
            };
            let key = Key::from_parts("amb_http_request_seconds", vec![Label::new("route", route)]);
            RouteMeter {
                statuses: STATUSES.iter().map(|status| by(status.to_string())).collect(),
                other: by("other".to_owned()),
                seconds: recorder.register_histogram(&key, &METADATA),
            }
        };
        Self {
            routes: ROUTES.iter().map(|name| route(name)).collect(),
            sockets: recorder.register_gauge(&Key::from_name("amb_ws_sockets"), &METADATA),
            replicas: recorder.register_gauge(&Key::from_name("amb_replicas"), &METADATA),
            stored_messages: recorder.register_gauge(&Key::from_name("amb_stored_messages"), &METADATA),
            stored_bytes: recorder.register_gauge(&Key::from_name("amb_stored_bytes"), &METADATA),
            pushed: counter(&recorder, "amb_events_pushed", vec![]),
            slow: counter(&recorder, "amb_ws_cut_off", vec![]),
            mail_removed: counter(&recorder, "amb_mail_removed", vec![]),
            handle: recorder.handle(),
        }
    }

    /// Counts one answered request.
    pub(crate) fn answered(&self, path: &str, status: u16, took: Duration) {
        let Some(route) = self.routes.get(route_of(path)) else { return };
        match STATUSES.iter().position(|known| *known == status).and_then(|at| route.statuses.get(at)) {
            Some(counter) => counter.increment(1),
            None => route.other.increment(1),
        }
        route.seconds.record(took.as_secs_f64());
    }

    /// Shows how much mail there is.
    pub(crate) fn stored(&self, usage: Usage) {
        self.stored_messages.set(usage.messages as f64);
        self.stored_bytes.set(usage.bytes as f64);
    }

    /// All figures in Prometheus' text form.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded times into their buckets; without it they pile up until somebody asks.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// The index in [`ROUTES`] of the route that a path belongs to.
fn route_of(path: &str) -> usize {
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
    ROUTES.iter().position(|route| *route == path || fits(route)).unwrap_or(ROUTES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_counted_by_its_route_and_never_by_its_ids() {
        assert_eq!(ROUTES[route_of("/inbox")], "/inbox");
        assert_eq!(ROUTES[route_of("/sessions/0190/history")], "/sessions/{session_id}/history");
        assert_eq!(ROUTES[route_of("/sessions/0190/history/x")], OTHER);
        assert_eq!(ROUTES[route_of("/secret")], OTHER);
    }

    #[test]
    fn what_was_counted_is_shown() {
        let meter = Meter::new();
        meter.answered("/inbox", 200, Duration::from_millis(3));
        meter.sockets.increment(1.0);
        let text = meter.render();
        assert!(text.contains(r#"amb_http_requests{route="/inbox",status="200"} 1"#), "{text}");
        assert!(text.contains(r#"amb_http_request_seconds_bucket{route="/inbox",le="0.005"} 1"#), "{text}");
        assert!(text.contains("amb_ws_sockets 1"), "{text}");
    }
}
