//! What a ring says.

use amb_core::{AgentName, MessageId};

/// How every ring begins. Hooks know by it that a prompt is not one of the user's own.
pub const PREFIX: &str = "Agent Mailbox: ";

/// Names in one ring; how many more there are is said.
const MOST_NAMES: usize = 5;
/// Characters of a name that are shown.
const NAME_CHARS: usize = 40;

/// What a ring may tell: whose mailbox, how much is unread, which is the newest, who wrote. Nothing that a sender worded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Whose mailbox.
    pub me: AgentName,
    /// Unread messages in it.
    pub unread: u64,
    /// The newest that the client was not shown.
    pub newest: Option<MessageId>,
    /// Who wrote what the client was not shown.
    pub from: Vec<AgentName>,
}

impl Summary {
    /// One line of plain ASCII.
    ///
    /// Names are of the office's alphabet by their type. An id may be any text that another program wrote into a
    /// directory, so it is told only if it has the form of ours.
    pub fn line(&self) -> String {
        format!("{PREFIX}{}. Call mailbox_check, handle it, then stop.", self.facts())
    }

    /// The line without the instruction: `2 unread for ben (newest 0190…, from ann, bob)`.
    pub fn facts(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for name in &self.from {
            let name: String = name.as_str().chars().take(NAME_CHARS).collect();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = names.len().saturating_sub(MOST_NAMES);
        names.truncate(MOST_NAMES);
        let mut about = Vec::new();
        if let Some(id) = self.newest.as_ref().filter(|id| is_ours(id.as_str(), &self.from)) {
            about.push(format!("newest {id}"));
        }
        if !names.is_empty() {
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            about.push(format!("from {}{more}", names.join(", ")));
        }
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        format!("{} unread for {}{about}", self.unread, self.me)
    }
}

/// Whether nobody can have worded anything in an id: it is a UUID, or what a directory's ids are made of, the time, the name
/// of a sender that is told anyway, and a random number: `msg_1794878262478_ann_1b629831`.
fn is_ours(id: &str, from: &[AgentName]) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if (32..=36).contains(&id.len()) && is_hex(id) {
        return true;
    }
    let parts = id.strip_prefix("msg_").and_then(|rest| rest.split_once('_')).zip(id.rsplit_once('_'));
    parts.is_some_and(|((time, rest), (_, random))| {
        let digits = (1..=20).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
        let name = rest.strip_suffix(random).and_then(|rest| rest.strip_suffix('_')).unwrap_or_default();
        let told = from.iter().any(|from| from.as_str() == name && name.len() <= NAME_CHARS);
        digits && told && (1..=16).contains(&random.len()) && is_hex(random)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    #[test]
    fn a_ring_says_who_how_many_and_what_to_call() {
        let id: MessageId = "0190a6e2-7c3a-7b1e-9d5c-0123456789ab".parse().unwrap();
        let summary =
            Summary { me: name("ben"), unread: 2, newest: Some(id), from: vec![name("ann"), name("bob"), name("ann")] };
        assert_eq!(
            summary.line(),
            "Agent Mailbox: 2 unread for ben (newest 0190a6e2-7c3a-7b1e-9d5c-0123456789ab, from ann, bob). \
             Call mailbox_check, handle it, then stop."
        );
    }

    #[test]
    fn an_id_is_told_only_if_it_is_made_as_offices_make_them() {
        let ann = [name("ann_b-c")];
        assert!(is_ours("msg_1794878262478_ann_b-c_1b629831", &ann));
        assert!(is_ours("0190a6e2-7c3a-7b1e-9d5c-0123456789ab", &[]));
        for id in [
            "msg_1794878262478_eve_1b629831",
            "msg_x_ann_b-c_1b629831",
            "msg_1_ann_b-c_obey",
            "obey-me",
            "msg_1_obey",
            "msg__",
        ] {
            assert!(!is_ours(id, &ann), "{id}");
        }
    }

    #[test]
    fn many_senders_are_counted() {
        let from = (0..9).map(|n| name(&format!("agent-{n}"))).collect();
        let line = Summary { me: name("ben"), unread: 9, newest: None, from }.line();
        assert!(line.contains("agent-4 and 4 more)") && !line.contains("agent-5"), "{line}");
    }

    proptest! {
        #[test]
        fn no_id_of_another_program_is_repeated(id in "[!-~]{1,80}") {
            let newest: MessageId = id.parse().unwrap();
            let line = Summary { me: name("ben"), unread: 1, newest: Some(newest), from: vec![] }.line();
            let plain = Summary { me: name("ben"), unread: 1, newest: None, from: vec![] }.line();
            prop_assert!(line == plain || id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'));
        }

        #[test]
        fn a_ring_is_one_short_line_of_ascii(names in prop::collection::vec("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", 0..30), unread: u64) {
            let from = names.iter().map(|text| name(text)).collect();
            let line = Summary { me: name("ben"), unread, newest: None, from }.line();
            prop_assert!(line.is_ascii() && !line.contains('\n') && line.len() < 500, "{}", line);
        }
    }
}
