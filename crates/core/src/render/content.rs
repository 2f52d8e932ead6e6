//! Content and attributes of a message, as all shapes show them.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::fence::fold;
use super::page::Attribute;
use super::visible::{is_invisible, line};
use crate::message::{Kind, Part, Priority};
use crate::name::AgentName;
use crate::task::TaskRef;

/// The name by which the reader is shown itself. No agent can have it, since names have no parentheses.
pub(crate) const YOU: &str = "you (this agent)";

/// The name of an agent as shown to `me`. An agent that is named "you" must not be taken for the reader.
pub(crate) fn speaker<'n>(name: &'n AgentName, me: Option<&AgentName>) -> Cow<'n, str> {
    if me == Some(name) {
        Cow::Borrowed(YOU)
    } else if imitates_you(name.as_str()) {
        Cow::Owned(format!("{name} (another agent, not you)"))
    } else {
        Cow::Borrowed(name.as_str())
    }
}

/// Whether a name could be misread as "you" or "this agent".
pub(crate) fn imitates_you(name: &str) -> bool {
    let plain = |c: char| !is_invisible(c) && !c.is_control();
    let folded: String = name.chars().filter(|c| plain(*c)).map(fold).collect();
    let letters: String = folded.chars().filter(|c| c.is_alphanumeric()).collect();
    letters == "you" || letters.contains("thisagent")
}

/// The attribute of a message from the person of the reader's household. No text can imitate an attribute.
pub(crate) fn person(from_person: bool) -> Attribute<'static> {
    ("person", from_person.then_some("yes"))
}

/// The content as one text: `text` if there are no parts, else each part on its own lines; data as JSON, a file by its
/// path.
pub fn content<'m>(text: &'m str, parts: &'m [Part]) -> Cow<'m, str> {
    if parts.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = match part {
            Part::Text { text } => write!(out, "{text}"),
            Part::Data { data } => write!(out, "[data] {data}"),
            Part::File { path, media_type: None } => write!(out, "[file] {}", line(path)),
            Part::File { path, media_type: Some(media_type) } => {
                write!(out, "[file] {} ({})", line(path), line(media_type))
            }
        };
    }
    Cow::Owned(out)
}

/// An instant, to the second.
pub(crate) fn when(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Attributes about a message's purpose.
pub(crate) struct Purpose<'m> {
    kind: Option<&'m str>,
    priority: Option<&'m str>,
    task: Option<&'m TaskRef>,
    deadline: Option<String>,
}

impl<'m> Purpose<'m> {
    pub(crate) fn of(kind: &'m Kind, priority: Priority, task: Option<&'m TaskRef>) -> Self {
        Self {
            kind: (*kind != Kind::Message).then(|| kind.as_str()),
            priority: (priority != Priority::Normal).then(|| priority.as_str()),
            task,
            deadline: task.and_then(|task| task.deadline).map(when),
        }
    }

    pub(crate) fn attributes(&self) -> [Attribute<'_>; 5] {
        [
            ("kind", self.kind),
            ("priority", self.priority),
            ("task", self.task.map(|task| task.id.as_str())),
            ("state", self.task.map(|task| task.state.as_str())),
            ("deadline", self.deadline.as_deref()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_on_its_own_lines() {
        let parts = [Part::text("see"), Part::data(serde_json::json!({"a": 1})), Part::file("/tmp/x.csv")];
        assert_eq!(content("ignored", &parts), "see\n[data] {\"a\":1}\n[file] /tmp/x.csv");
        assert_eq!(content("plain", &[]), "plain");
    }

    #[test]
    fn a_file_part_is_one_line() {
        let file = Part::File { path: "a\n[file] b".into(), media_type: Some("text/plain\n".into()) };
        assert_eq!(content("", &[file]), "[file] a⟨U+000A⟩[file] b (text/plain⟨U+000A⟩)");
    }

    #[test]
    fn an_agent_named_you_is_not_taken_for_the_reader() {
        let [you, this, bob]: [AgentName; 3] = ["You", "this-agent", "bob"].map(|name| name.parse().unwrap());
        assert_eq!(speaker(&you, Some(&bob)), "You (another agent, not you)");
        assert_eq!(speaker(&this, None), "this-agent (another agent, not you)");
        assert_eq!(speaker(&bob, None), "bob");
        assert_eq!(speaker(&bob, Some(&bob)), YOU);
        assert_eq!(speaker(&you, Some(&you)), YOU);
    }

    #[test]
    fn a_plain_message_has_no_attributes_about_its_purpose() {
        let purpose = Purpose::of(&Kind::Message, Priority::Normal, None);
        assert!(purpose.attributes().iter().all(|(_, value)| value.is_none()));
    }
}
