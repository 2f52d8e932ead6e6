//! Collects the agent's answer of one turn from the `session/update` notifications.

use serde_json::Value;

/// The most that is kept of one answer, in bytes; the answer says that there was more.
const MAX_ANSWER: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Collected {
    text: String,
    is_cut: bool,
    /// A tool ran since the last text: the next text is a new paragraph.
    is_after_tool: bool,
}

impl Collected {
    pub(super) fn add(&mut self, update: &Value) {
        let kind = update.get("sessionUpdate").and_then(Value::as_str);
        match kind {
            Some("agent_message_chunk") => {
                if let Some(text) = update.pointer("/content/text").and_then(Value::as_str) {
                    self.say(text);
                }
            }
            Some("tool_call" | "tool_call_update") => self.is_after_tool = true,
            // Thoughts, plans and available commands are not part of the answer.
            _ => {}
        }
    }

    fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.is_after_tool) && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push_str("\n\n");
        }
        let room = MAX_ANSWER.saturating_sub(self.text.len());
        let end = text.floor_char_boundary(room);
        self.text.push_str(&text[..end]);
        self.is_cut |= end < text.len();
    }

    /// The whole answer, with a note where it was cut.
    pub(super) fn finish(mut self) -> String {
        if self.is_cut {
            self.text.push_str(&format!("\n[cut: the agent said more than {MAX_ANSWER} bytes]"));
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_joined_thoughts_left_out_and_tools_part_paragraphs() {
        let mut answer = Collected::default();
        let said = |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
        answer.add(&said("agent_thought_chunk", "hm"));
        answer.add(&said("agent_message_chunk", "I lo"));
        answer.add(&said("agent_message_chunk", "ok."));
        answer.add(&json!({"sessionUpdate": "tool_call", "toolCallId": "1"}));
        answer.add(&said("agent_message_chunk", "Found."));
        answer.add(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image"}}));
        assert_eq!(answer.finish(), "I look.\n\nFound.");
    }

    #[test]
    fn an_answer_without_end_is_cut_and_says_so() {
        let mut answer = Collected::default();
        let much = json!({"sessionUpdate": "agent_message_chunk", "content": {"text": "é".repeat(400_000)}});
        for _ in 0..4 {
            answer.add(&much);
        }
        let text = answer.finish();
        assert!(text.len() < MAX_ANSWER + 100 && text.ends_with("bytes]"), "{}", text.len());
    }
}
