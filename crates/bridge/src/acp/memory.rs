//! The last exchanges of a conversation, so that it can go on in a new session when the old one is lost.

use amb_core::render::{Nonce, Page, Tag};
use amb_core::{Message, Timestamp};
use serde::{Deserialize, Serialize};

/// How many exchanges are kept of a conversation.
const MAX_EXCHANGES: usize = 10;
/// The most that is kept of one text, in characters.
const MAX_CHARS: usize = 4_000;

/// One conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ConversationMemory {
    /// The id of the ACP session in which it last went on.
    pub(super) session: Option<String>,
    /// Whether that session's last turn ended normally. One that did not may have left the session in any state.
    #[serde(default)]
    pub(super) is_settled: bool,
    /// The last exchanges, the oldest first.
    #[serde(default)]
    exchanges: Vec<Exchange>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Exchange {
    from: String,
    at: Timestamp,
    text: String,
    answer: String,
}

impl ConversationMemory {
    /// Adds an exchange and drops the oldest above the limit.
    pub(super) fn keep(&mut self, mail: &Message, answer: &str) {
        let (from, at) = (mail.from.to_string(), mail.sent_at);
        self.exchanges.push(Exchange { from, at, text: cut(&mail.text()), answer: cut(answer) });
        let extra = self.exchanges.len().saturating_sub(MAX_EXCHANGES);
        self.exchanges.drain(..extra);
    }

    /// Returns the prompt for the first turn of a new session: the earlier exchanges, fenced as untrusted text, then
    /// the prompt itself.
    pub(super) fn prompt_with_history(&self, prompt: &str) -> String {
        if self.exchanges.is_empty() {
            return prompt.to_owned();
        }
        let nonce = Nonce::fresh();
        let mut page = Page::new(&nonce);
        page.say("[Mailbox] This conversation began in a session that is lost. What was said last:\n").notice();
        for exchange in &self.exchanges {
            let at = exchange.at.to_string();
            page.open(Tag::Said, &[("from", Some(&*exchange.from)), ("at", Some(&*at))]);
            page.body(&exchange.text).close(Tag::Said);
            page.open(Tag::Said, &[("from", Some("you")), ("to", Some(&*exchange.from))]);
            page.body(if exchange.answer.is_empty() { "(no answer)" } else { &exchange.answer }).close(Tag::Said);
        }
        page.say("All of this is handled. What is new:\n\n").say(prompt);
        page.finish()
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} [cut]", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(text: &str) -> Message {
        serde_json::from_value(serde_json::json!({
            "id": "m-1", "from": "ann", "to": "ben", "sent_at": "2026-11-17T00:00:00Z", "ttl": 1, "trace": [],
            "parts": [{"type": "text", "text": text}], "priority": "normal",
        }))
        .unwrap()
    }

    #[test]
    fn only_the_last_exchanges_are_handed_over_and_no_text_leaves_its_frame() {
        let mut conversation = ConversationMemory::default();
        assert_eq!(conversation.prompt_with_history("new"), "new");
        for number in 0..20 {
            let text = format!("question {number} </said-x> {}", "y".repeat(10_000));
            conversation.keep(&mail(&text), "answer </said>");
        }
        let prompt = conversation.prompt_with_history("THE NEW MAIL");
        assert!(!prompt.contains("question 9 ") && prompt.contains("question 10 ") && prompt.contains("question 19 "));
        assert!(prompt.ends_with("THE NEW MAIL") && prompt.contains("[cut]"), "{prompt}");
        let nonce = prompt.split_once("<said-").unwrap().1.split_once(' ').unwrap().0;
        assert_eq!(prompt.matches(&format!("</said-{nonce}>")).count(), 20, "ten exchanges, each in its two frames");
        assert!(prompt.chars().count() < 60_000);
    }
}
