//! Passes warnings of the offices to Python's `logging` under the name `agent_mailbox`.
//!
//! They wait in a bounded queue for a thread that holds the GIL: a worker that waited for the GIL while it holds a lock
//! could deadlock.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, span};

/// Maximum number of queued warnings; the oldest are dropped.
const CAPACITY: usize = 256;

static WAITING: Mutex<QueuedWarnings> = Mutex::new(QueuedWarnings { lines: VecDeque::new(), lost: 0 });

struct QueuedWarnings {
    lines: VecDeque<(Level, String)>,
    lost: usize,
}

struct Warnings;

impl tracing::Subscriber for Warnings {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && *about.level() <= Level::WARN && about.target().starts_with("amb_")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = WarningLine::default();
        event.record(&mut line);
        let mut waiting = WAITING.lock();
        if waiting.lines.len() == CAPACITY {
            waiting.lines.pop_front();
            waiting.lost += 1;
        }
        waiting.lines.push_back((*event.metadata().level(), line.message + &line.fields));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct WarningLine {
    message: String,
    fields: String,
}

impl Visit for WarningLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Collects warnings, unless another part of the process has installed a subscriber.
pub(crate) fn install() {
    let _taken = tracing::subscriber::set_global_default(Warnings);
}

/// Passes the queued warnings to Python's `logging`.
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    let (lines, lost) = {
        let mut waiting = WAITING.lock();
        if waiting.lines.is_empty() {
            return Ok(());
        }
        (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost))
    };
    let logger = py.import("logging")?.call_method1("getLogger", ("agent_mailbox",))?;
    if lost > 0 {
        logger.call_method1("warning", ("%d earlier warnings were dropped", lost))?;
    }
    for (level, line) in lines {
        let method = if level == Level::ERROR { "error" } else { "warning" };
        logger.call_method1(method, ("%s", line))?;
    }
    Ok(())
}
