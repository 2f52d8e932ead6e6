//! The state of mounted directories: metrics for operators, and health without paths and names for everybody.

use std::fmt::Write;

use amb_core::doc::MountView;
use amb_mount::{Mount, MountHealth, MountState};

/// Returns the state of all mounts, in the order of the configuration.
pub(crate) fn views(mounts: &[Mount]) -> Vec<MountView> {
    let view = |health: MountHealth| MountView {
        state: health.state.as_str().to_owned(),
        residents: health.residents,
        guests: health.guests,
        waiting: health.waiting,
        collisions: health.collisions.len() as u64,
    };
    mounts.iter().map(|mount| view(mount.health())).collect()
}

/// Name, type, extra label, help text (empty for a repeated name) and value of each metric.
type Metric = (&'static str, &'static str, &'static str, &'static str, fn(&MountHealth) -> u64);

const METRICS: &[Metric] = &[
    ("amb_mount_up", "gauge", "", "Whether the directory is mounted and nothing fails.", |health| {
        u64::from(health.state == MountState::Mounted)
    }),
    ("amb_mount_carried_total", "counter", r#",to="directory""#, "Messages carried.", |health| health.carried_in),
    ("amb_mount_carried_total", "counter", r#",to="office""#, "", |health| health.carried_out),
    ("amb_mount_refused_total", "counter", "", "Messages put aside.", |health| health.refused),
    ("amb_mount_failures_total", "counter", "", "Tries that failed.", |health| health.failures),
    ("amb_mount_waiting", "gauge", "", "Messages that wait for consent.", |health| health.waiting),
    ("amb_mount_collisions", "gauge", "", "Names under which no mail crosses.", |health| {
        health.collisions.len() as u64
    }),
];

/// Renders the metrics of all mounts in the text format of Prometheus.
pub(crate) fn metrics(mounts: &[Mount]) -> String {
    let mounts: Vec<MountHealth> = mounts.iter().map(Mount::health).collect();
    let mut text = String::new();
    for (name, kind, label, help, value) in METRICS.iter().filter(|_| !mounts.is_empty()) {
        if !help.is_empty() {
            let _infallible = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for health in &mounts {
            let directory = escaped(&health.directory.display().to_string());
            let _infallible = writeln!(text, r#"{name}{{directory="{directory}"{label}}} {}"#, value(health));
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_labelled_with_the_directory() {
        assert_eq!(metrics(&[]), "");
        let text = metrics(&[Mount::new("a\"b".as_ref()).unwrap()]);
        assert!(text.contains("amb_mount_up{directory=\"a\\\"b\"} 0\n"), "{text}");
        assert!(text.contains("amb_mount_carried_total{directory=\"a\\\"b\",to=\"office\"} 0\n"), "{text}");
        assert_eq!(text.matches("# TYPE amb_mount_carried_total counter").count(), 1);
    }
}
