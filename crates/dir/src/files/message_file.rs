//! One message file, in either layout: its name, its bytes, and the message in it.

use std::borrow::Cow;
use std::io::{self, Read};
use std::path::Path;

use amb_core::message::NO_SUBJECT;
use amb_core::wire::{WireError, chipset, filename, nanobot};
use amb_core::{AgentName, Kind, Message, MessageId, SessionId, TaskId, TaskState, Timestamp};

use crate::files::layout::Layout;
use crate::files::open;

/// Files larger than this are not mail: nothing that the office accepts comes near.
pub(crate) const LARGEST: u64 = 16 << 20;

/// A message and what its recipient did with it, as far as the file says.
#[derive(Debug, Clone)]
pub(crate) struct ParsedMessage {
    pub(crate) message: Message,
    /// Says nothing in the nanobot layout, where the directory tells.
    pub(crate) read: bool,
}

/// Why a file gave no message.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Gone, or the file system failed.
    Io(io::Error),
    /// The file is no message; another program wrote it so, or has not finished.
    Bad(WireError),
}

impl Unreadable {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the text ends too soon, as it does while a program that does not rename is still writing.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Unreadable::Bad(WireError::NotJson(why)) if why.contains("EOF"))
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::Io(error) => error.fmt(f),
            Unreadable::Bad(error) => error.fmt(f),
        }
    }
}

/// Whether a file of this name is mail.
pub(crate) fn is_mail(layout: Layout, name: &str) -> bool {
    let suffix = match layout {
        Layout::Nanobot => filename::NANOBOT_ENDING,
        Layout::Chipset => filename::CHIPSET_ENDING,
    };
    name.ends_with(suffix) && !name.starts_with('.')
}

/// When the message was sent, as far as the name tells.
pub(crate) fn time_in(layout: Layout, name: &str) -> Option<Timestamp> {
    match layout {
        Layout::Nanobot => filename::parse_nanobot(name).map(|name| name.at),
        Layout::Chipset => filename::parse_chipset(name).map(|name| name.at),
    }
}

/// Opens and reads a message in the mailbox of `owner`. `name` is the one under which it arrived.
pub(crate) fn open(layout: Layout, owner: &AgentName, path: &Path, name: &str) -> Result<ParsedMessage, Unreadable> {
    let file = open::regular(path).map_err(Unreadable::Io)?;
    read(layout, owner, file.file(), &mut file.file(), name)
}

/// Reads a message from an open file.
pub(crate) fn read(
    layout: Layout,
    owner: &AgentName,
    file: &std::fs::File,
    from: &mut impl Read,
    name: &str,
) -> Result<ParsedMessage, Unreadable> {
    let about = file.metadata().map_err(Unreadable::Io)?;
    let mut bytes = Vec::with_capacity(about.len().min(LARGEST) as usize + 1);
    from.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > LARGEST {
        let problem = format!("too large: {} bytes, at most {LARGEST}", about.len());
        return Err(Unreadable::Bad(WireError::NotJson(problem)));
    }
    let seen_at = about.modified().ok().and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default();
    parse(layout, owner, name, &bytes, seen_at).map_err(Unreadable::Bad)
}

/// Reads a message from its bytes.
fn parse(
    layout: Layout,
    owner: &AgentName,
    name: &str,
    bytes: &[u8],
    seen_at: Timestamp,
) -> Result<ParsedMessage, WireError> {
    let (mut message, read) = match layout {
        Layout::Nanobot => (nanobot::parse(bytes, name, seen_at)?, false),
        Layout::Chipset => chipset::parse(bytes, name, seen_at)?,
    };
    // Whose mailbox it lies in decides whose mail it is.
    message.to = owner.clone();
    // Earlier versions wrote down that there is none.
    message.subject = message.subject.filter(|subject| subject != NO_SUBJECT);
    if message.session.is_none() {
        let subject = message.subject.as_deref().unwrap_or(NO_SUBJECT);
        message.session = Some(SessionId::between(&message.from, &message.to, subject));
    }
    if layout == Layout::Nanobot && answers_task_of(owner, &message) {
        // Earlier nanobots copy the type and the task of what they answer, as it stood.
        message.kind = Kind::TaskUpdate;
        if let Some(task) = &mut message.task
            && task.state == TaskState::Pending
        {
            task.state = TaskState::Completed;
        }
    }
    if message.kind == Kind::Task && message.task.is_none() {
        message.task = TaskId::parse(message.id.as_str()).ok().map(|id| amb_core::task::TaskRef {
            id,
            state: TaskState::Pending,
            deadline: None,
            extra: amb_core::Object::new(),
        });
    }
    Ok(ParsedMessage { message, read })
}

/// Whether a task in somebody's mailbox has an id that this office made for a task of theirs: then it is the answer to it.
fn answers_task_of(owner: &AgentName, message: &Message) -> bool {
    let Some(task) = message.task.as_ref().filter(|_| message.kind == Kind::Task && message.from != *owner) else {
        return false;
    };
    let rest = task.id.as_str().strip_prefix("msg_").and_then(|rest| rest.get(13..)?.strip_prefix('_'));
    let nonce = rest.and_then(|rest| rest.strip_prefix(&*in_id(owner))?.strip_prefix('_'));
    nonce.is_some_and(|nonce| nonce.len() == 8 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Names the space in which second ids are hashed; it must never change.
const SECOND_SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x5d80_13fa_6be2_5c47_8c11_e9a4_720f_bd36);

/// The id of a message whose own id another message has already: other programs use a second's stamp as an id.
pub(crate) fn second_id(message: &Message, name: &str) -> MessageId {
    let told = format!("{name}\n{}\n{}", message.sent_at, message.text());
    let hash = uuid::Uuid::new_v5(&SECOND_SPACE, told.as_bytes());
    MessageId::parse(&format!("{}~{:08x}", message.id, hash.as_fields().0)).unwrap_or_else(|_| hash.into())
}

/// The id of a task whose own id another task of the same agent has already.
pub(crate) fn second_task_id(id: &TaskId, message: &Message, name: &str) -> TaskId {
    let told = format!("{}\n{name}\n{}", message.from, message.text());
    let hash = uuid::Uuid::new_v5(&SECOND_SPACE, told.as_bytes());
    TaskId::parse(&format!("{id}~{:08x}", hash.as_fields().0)).unwrap_or_else(|_| hash.into())
}

/// Tells a message from another one in a file of the same name.
pub(crate) fn mark(message: &Message, name: &str) -> u32 {
    uuid::Uuid::new_v5(&SECOND_SPACE, format!("{name}\n{}", message.text()).as_bytes()).as_fields().0
}

/// Gives a message from a file the id under which the office knows it; nothing if it is another message.
pub(crate) fn known_as(mut message: Message, name: &str, id: &MessageId) -> Option<Message> {
    if message.id != *id && second_id(&message, name) != *id {
        return None;
    }
    message.id = id.clone();
    Some(message)
}

/// Whether the id is one that only this office makes, and so cannot be another message's.
pub(crate) fn is_unique(layout: Layout, name: &str, message: &Message) -> bool {
    let digits =
        |text: &str, count: usize| text.len() >= count && text.bytes().take(count).all(|byte| byte.is_ascii_hexdigit());
    match layout {
        Layout::Nanobot => {
            let rest = message.id.as_str().strip_prefix("msg_").and_then(|rest| rest.get(13..)?.strip_prefix('_'));
            let nonce = rest.and_then(|rest| rest.strip_prefix(&*in_id(&message.from))?.strip_prefix('_'));
            nonce.is_some_and(|nonce| nonce.len() == 8 && digits(nonce, 8))
        }
        // Stamped to the microsecond.
        Layout::Chipset => name.get(19..).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| digits(rest, 6)),
    }
}

/// Where the file of a task that the office rejects says why.
pub(crate) const REASON: &str = "reason";

/// Whether this is a task that the office rejected when it was sent: it was shown to nobody.
pub(crate) fn is_rejected(message: &Message) -> bool {
    message.kind == Kind::Task && message.task.as_ref().is_some_and(|task| task.state == TaskState::Rejected)
}

/// The bytes of a new message, not yet read.
pub(crate) fn write(layout: Layout, message: &Message) -> Result<Vec<u8>, WireError> {
    let mut message = message.clone();
    let derived = {
        let subject = message.subject.as_deref().unwrap_or(NO_SUBJECT);
        SessionId::between(&message.from, &message.to, subject)
    };
    // A session that follows from the pair and the subject need not be written down, nor that there is no subject.
    message.session = message.session.filter(|session| *session != derived);
    message.subject = message.subject.filter(|subject| subject != NO_SUBJECT);
    match layout {
        Layout::Nanobot => nanobot::write(&message),
        Layout::Chipset => chipset::write(&message, false),
    }
}

/// A name as it stands in an id, where there are no spaces. No name has a `+`, so two names never become one.
fn in_id(name: &AgentName) -> Cow<'_, str> {
    if name.is_plain() { Cow::Borrowed(name.as_str()) } else { Cow::Owned(name.as_str().replace(' ', "+")) }
}

/// The id of a new message of `from`, and the names its file may get: the n-th if the others are taken.
///
/// In the chipset layout the id is the name of the file, so the id is known for good only when the file has its name.
pub(crate) fn new_id(layout: Layout, at: Timestamp, from: &AgentName, nonce: u32) -> MessageId {
    let text = match layout {
        Layout::Nanobot => format!("msg_{:013}_{}_{nonce:08x}", at.as_millisecond().max(0), in_id(from)),
        Layout::Chipset => stem(layout, &chipset_name(at, from, 0)).to_owned(),
    };
    // A name has at most 100 safe characters, so this is always an id.
    MessageId::parse(&text).unwrap_or_else(|_| MessageId::fresh(at))
}

/// The name of a new message's file, for the n-th attempt to find a free one.
pub(crate) fn new_name(layout: Layout, at: Timestamp, from: &AgentName, nonce: u32, attempt: u32) -> String {
    match (layout, attempt) {
        (Layout::Nanobot, 0) => filename::nanobot(at, from),
        (Layout::Nanobot, attempt) => filename::nanobot_with_suffix(at, from, nonce.wrapping_add(attempt - 1)),
        (Layout::Chipset, attempt) => chipset_name(at, from, attempt),
    }
}

/// Microseconds from the start: two mailboxes must not give one sender's messages the same id.
fn chipset_name(at: Timestamp, from: &AgentName, attempt: u32) -> String {
    filename::chipset(at, from, attempt + 1)
}

/// The one name that the file of a message can have that is sent under an idempotency key, carried, or an update of a task. Its
/// id is the [`new_id`] of the same moment and number.
pub(crate) fn exact_name(layout: Layout, id: &MessageId, at: Timestamp, from: &AgentName, nonce: u32) -> String {
    match layout {
        Layout::Nanobot => filename::nanobot_with_suffix(at, from, nonce),
        Layout::Chipset => format!("{id}{}", filename::CHIPSET_ENDING),
    }
}

/// The name without its ending.
pub(crate) fn stem(layout: Layout, name: &str) -> &str {
    let suffix = match layout {
        Layout::Nanobot => filename::NANOBOT_ENDING,
        Layout::Chipset => filename::CHIPSET_ENDING,
    };
    name.strip_suffix(suffix).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_core::{Draft, Object, Priority};

    fn message(layout: Layout) -> Message {
        let at: Timestamp = "2026-03-05T10:30:00.123456Z".parse().unwrap();
        let draft = Draft::text("bob".parse().unwrap(), "Plan", "hello");
        let from: AgentName = "ann".parse().unwrap();
        Message {
            id: new_id(layout, at, &from, 0xbeef),
            session: Some(SessionId::between(&from, &draft.to, "Plan")),
            trace: vec![from.clone()],
            from,
            from_person: false,
            to: draft.to,
            sent_at: at,
            kind: Kind::Message,
            subject: draft.subject,
            parts: draft.parts,
            priority: Priority::Normal,
            ttl: 2,
            task: None,
            callback: None,
            reply_to: None,
            correlation_id: None,
            metadata: Object::new(),
        }
    }

    #[test]
    fn a_letter_comes_back_as_it_was_written() {
        for layout in [Layout::Nanobot, Layout::Chipset] {
            let message = message(layout);
            let name = new_name(layout, message.sent_at, &message.from, 0xbeef, 0);
            assert!(is_mail(layout, &name), "{name}");
            let bytes = write(layout, &message).unwrap();
            let back = parse(layout, &message.to, &name, &bytes, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(back.message, message, "{layout}");
            assert!(!back.read);
        }
    }

    #[test]
    fn mail_without_a_subject_is_written_without_one() {
        for layout in [Layout::Nanobot, Layout::Chipset] {
            let subjects = [None, Some(NO_SUBJECT.to_owned())];
            for subject in subjects {
                let session = Some(SessionId::between(&"ann".parse().unwrap(), &"bob".parse().unwrap(), NO_SUBJECT));
                let message = Message { subject, session, ..message(layout) };
                let bytes = write(layout, &message).unwrap();
                let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                let written = match layout {
                    Layout::Nanobot => serde_json::Value::Null,
                    // One of the eight fields that every file has.
                    Layout::Chipset => "".into(),
                };
                assert_eq!(value.get("subject").cloned().unwrap_or_default(), written, "{layout}: {value}");
                let back = parse(layout, &message.to, "x", &bytes, Timestamp::UNIX_EPOCH).unwrap().message;
                assert_eq!((back.subject, back.session), (None, message.session), "{layout}");
            }
            // As an earlier version wrote it.
            let old = br#"{"from":"ann","to":"bob","subject":"(no subject)"}"#;
            let back = parse(layout, &"bob".parse().unwrap(), "x", old, Timestamp::UNIX_EPOCH).unwrap().message;
            let session = SessionId::between(&"ann".parse().unwrap(), &"bob".parse().unwrap(), NO_SUBJECT);
            assert_eq!((back.subject, back.session), (None, Some(session)), "{layout}");
        }
    }

    #[test]
    fn every_attempt_has_another_name() {
        let at: Timestamp = "2026-03-05T10:30:00.123456Z".parse().unwrap();
        let from = "ann".parse().unwrap();
        for layout in [Layout::Nanobot, Layout::Chipset] {
            let mut names: Vec<_> = (0..50).map(|n| new_name(layout, at, &from, 7, n)).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 50);
        }
        assert_eq!(new_name(Layout::Nanobot, at, &from, 7, 0), "1772706600123_ann.msg.json");
    }
}
