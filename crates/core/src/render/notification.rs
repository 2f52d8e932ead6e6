//! The end of a background task, as its coordinator sees it. The shape is fixed by the runtimes that read it.

use std::fmt::{self, Write as _};

use super::fence::element;
use crate::id::TaskId;

/// How a background task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackgroundOutcome {
    /// With a result.
    Completed,
    /// With an error.
    Failed,
    /// It was stopped.
    Killed,
    /// It took too long.
    Timeout,
}

impl BackgroundOutcome {
    /// All outcomes.
    pub const ALL: [BackgroundOutcome; 4] = [
        BackgroundOutcome::Completed,
        BackgroundOutcome::Failed,
        BackgroundOutcome::Killed,
        BackgroundOutcome::Timeout,
    ];

    /// The word in the block.
    pub fn as_str(self) -> &'static str {
        match self {
            BackgroundOutcome::Completed => "completed",
            BackgroundOutcome::Failed => "failed",
            BackgroundOutcome::Killed => "killed",
            BackgroundOutcome::Timeout => "timeout",
        }
    }
}

impl fmt::Display for BackgroundOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The resources that a task used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackgroundUsage {
    /// Tokens read and written by the model.
    pub total_tokens: u64,
    /// Tool calls.
    pub tool_uses: u64,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// A `<task-notification>` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskNotification {
    /// The task's id.
    pub task_id: TaskId,
    /// How it ended.
    pub status: BackgroundOutcome,
    /// A one-line summary.
    pub summary: String,
    /// The result.
    pub result: Option<String>,
    /// The resources that it used.
    pub usage: Option<BackgroundUsage>,
}

impl TaskNotification {
    /// The block. `< > & " '` in every text are escaped, so the only tags in it are its own.
    pub fn render(&self) -> String {
        let mut out = String::from("<task-notification>\n");
        let mut field = |name: &str, text: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "<{name}>{}</{name}>", element(text));
        };
        field("task-id", self.task_id.as_str());
        field("status", self.status.as_str());
        field("summary", &self.summary);
        if let Some(result) = &self.result {
            field("result", result);
        }
        if let Some(BackgroundUsage { total_tokens, tool_uses, duration_ms }) = self.usage {
            let _ = writeln!(
                out,
                "<usage><total_tokens>{total_tokens}</total_tokens><tool_uses>{tool_uses}</tool_uses>\
                 <duration_ms>{duration_ms}</duration_ms></usage>"
            );
        }
        out.push_str("</task-notification>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::hostile::{frames, hostile_text};
    use proptest::prelude::*;

    #[test]
    fn the_block_has_the_shape_that_coordinators_read() {
        let mut notification = TaskNotification {
            task_id: "t-1".parse().unwrap(),
            status: BackgroundOutcome::Completed,
            summary: "found \"it\" & more".into(),
            result: None,
            usage: None,
        };
        assert_eq!(
            notification.render(),
            "<task-notification>\n<task-id>t-1</task-id>\n<status>completed</status>\n\
             <summary>found &quot;it&quot; &amp; more</summary>\n</task-notification>\n"
        );
        notification.result = Some("a < b\nit's".into());
        notification.usage = Some(BackgroundUsage { total_tokens: 12, tool_uses: 3, duration_ms: 4_500 });
        assert!(notification.render().ends_with(
            "<result>a &lt; b\nit&#39;s</result>\n<usage><total_tokens>12</total_tokens><tool_uses>3</tool_uses>\
             <duration_ms>4500</duration_ms></usage>\n</task-notification>\n"
        ));
    }

    proptest! {
        #[test]
        fn no_text_adds_a_tag(summary in hostile_text(), result in hostile_text(), status in 0..4usize) {
            let shown = TaskNotification {
                task_id: "t<1>".parse().unwrap(),
                status: BackgroundOutcome::ALL[status],
                summary,
                result: Some(result),
                usage: None,
            }
            .render();
            prop_assert_eq!(shown.matches('<').count(), 10, "{}", shown);
            for tag in ["task-notification", "task-id", "status", "summary", "result"] {
                let frames = frames(&shown, tag);
                prop_assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{} in {}", tag, shown);
            }
        }
    }
}
