//! `GET /dashboard/health`: statistics of the office, for its operator.

use amb_core::{Code, OfficeError};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::frame::{PageError, PageFrame, page};
use super::html::{Html, bytes, number};
use super::picture::chart;
use super::session::Visitor;
use super::stats::{INTERVAL, Sample};
use crate::app::App;

#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    frame: PageFrame,
    charts: Vec<Chart>,
    minutes: u64,
    ready: Result<(), String>,
    mounts: usize,
}

struct Chart {
    title: &'static str,
    now: String,
    about: &'static str,
    picture: Html,
}

pub(super) async fn health(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    if !visitor.viewer.operator {
        let detail = "the office's health is for its operator";
        return Err(OfficeError::new(Code::Forbidden, detail).into());
    }
    let samples = app.stats.samples();
    let last = samples.last().copied().unwrap_or_default();
    let line = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let draw = |title: &'static str, about: &'static str, now: String, lines: &[Vec<f64>]| {
        let lines: Vec<&[f64]> = lines.iter().map(Vec::as_slice).collect();
        Chart { title, about, picture: chart(&format!("{title}: {now}"), &lines), now }
    };
    let wake_ups = [0, 1, 2].map(|kind| samples.iter().map(|sample| sample.wake_ups[kind]).sum::<u64>());
    let charts = vec![
        draw("Sends", "messages a second", format!("{:.1}/s", last.sends), &[line(|s| s.sends)]),
        draw(
            "Time to answer",
            "p50, p95 and p99",
            format!("{:.1} / {:.1} / {:.1} ms", last.p50, last.p95, last.p99),
            &[line(|s| s.p50), line(|s| s.p95), line(|s| s.p99)],
        ),
        draw("Unread", "messages that wait for a reader", number(&last.size.unread), &[line(|s| s.size.unread as f64)]),
        draw("Requests", "a second, all routes", format!("{:.1}/s", last.requests), &[line(|s| s.requests)]),
        draw(
            "Refused and failed",
            "answers 4xx and 5xx a second",
            format!("{:.1} / {:.1}", last.refused, last.failed),
            &[line(|s| s.refused), line(|s| s.failed)],
        ),
        draw("Push lag", "longest wait for a WebSocket", format!("{:.1} ms", last.lag), &[line(|s| s.lag)]),
        draw("Listeners", "WebSockets, long polls and pages", format!("{:.0}", last.sockets), &[line(|s| s.sockets)]),
        draw(
            "Wake-ups",
            "rung, held and failed in this time",
            wake_ups.map(|count| number(&count)).join(" / "),
            &[line(|s| s.wake_ups[0] as f64), line(|s| s.wake_ups[1] as f64), line(|s| s.wake_ups[2] as f64)],
        ),
        draw("Database", "size on disk", bytes(&last.size.database_bytes), &[line(|s| s.size.database_bytes as f64)]),
        draw("Replicas", "processes on this database", format!("{:.0}", last.replicas), &[line(|s| s.replicas)]),
        draw("Agents", "registered here", number(&last.size.agents), &[line(|s| s.size.agents as f64)]),
    ];
    let ready = app.store.ready().await.map_err(|error| error.detail().to_owned());
    page(&HealthPage {
        frame: PageFrame::new(&visitor, "Health", "Health"),
        charts,
        minutes: (samples.len() as u64 * INTERVAL.as_secs()).div_ceil(60),
        ready,
        mounts: app.mounts.len(),
    })
}
