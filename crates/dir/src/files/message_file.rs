//! One message file, in either layout: its name, its bytes, and the message in it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use amb_core::message::NO_SUBJECT;
use amb_core::task::TaskRef;
use amb_core::wire::{WireError, chipset, filename, nanobot};
use amb_core::{AgentName, Kind, Message, MessageId, Object, SessionId, TaskId, TaskState, Timestamp};
use uuid::Uuid;

use crate::files::layout::Layout;
use crate::files::open;
use crate::log::Brief;

/// Larger files are not mail: no accepted message comes near.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// How long after the last write a truncated file may still be completed.
const WRITE_GRACE: Duration = Duration::from_secs(1);

/// A message and the read state in its file.
#[derive(Debug, Clone)]
pub(crate) struct ParsedMessage {
    pub(crate) message: Message,
    /// Always false in the nanobot layout, where the file's directory tells.
    pub(crate) read: bool,
}

/// Why a file could not be read as a message.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The file is missing, or the file system failed.
    Io(io::Error),
    /// The file is no message, or another program has not finished writing it.
    Invalid(WireError),
}

impl Unreadable {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a program that does not rename may still be writing the file: its JSON ends too soon, and it is young.
    pub(crate) fn may_be_unfinished(&self, path: &Path) -> bool {
        let is_truncated = matches!(self, Unreadable::Invalid(WireError::NotJson(why)) if why.contains("EOF"));
        let age = || fs_err::metadata(path).ok().and_then(|metadata| open::age(&metadata));
        is_truncated && age().is_some_and(|age| age < WRITE_GRACE)
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::Io(error) => error.fmt(f),
            Unreadable::Invalid(error) => error.fmt(f),
        }
    }
}

/// Whether a file of this name is mail.
pub(crate) fn is_mail(layout: Layout, name: &str) -> bool {
    name.ends_with(layout.suffix()) && !name.starts_with('.')
}

/// Returns the time in a file name.
pub(crate) fn time_in_name(layout: Layout, name: &str) -> Option<Timestamp> {
    match layout {
        Layout::Nanobot => filename::parse_nanobot(name).map(|name| name.at),
        Layout::Chipset => filename::parse_chipset(name).map(|name| name.at),
    }
}

/// Opens and reads a message in the mailbox of `owner`. `name` is the file name under which it arrived.
pub(crate) fn open(layout: Layout, owner: &AgentName, path: &Path, name: &str) -> Result<ParsedMessage, Unreadable> {
    let file = open::regular(path).map_err(Unreadable::Io)?;
    read(layout, owner, file.file(), name)
}

/// Reads a message from an open file.
pub(crate) fn read(layout: Layout, owner: &AgentName, file: &File, name: &str) -> Result<ParsedMessage, Unreadable> {
    let metadata = file.metadata().map_err(Unreadable::Io)?;
    let mut bytes = Vec::with_capacity(metadata.len().min(MAX_BYTES) as usize + 1);
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        let problem = format!("too large: {} bytes, at most {MAX_BYTES}", metadata.len());
        return Err(Unreadable::Invalid(WireError::NotJson(problem)));
    }
    let seen_at = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default();
    parse(layout, owner, name, &bytes, seen_at).map_err(Unreadable::Invalid)
}

/// Parses a message.
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
    // The mailbox decides who the recipient is, not the file.
    message.to = owner.clone();
    // Earlier versions wrote this placeholder.
    message.subject = message.subject.filter(|subject| subject != NO_SUBJECT);
    if message.session.is_none() {
        message.session = Some(derived_session(&message));
    }
    if layout == Layout::Nanobot && answers_task_of(owner, &message) {
        // Earlier nanobots copy type and task of the message that they answer, unchanged.
        message.kind = Kind::TaskUpdate;
        if let Some(task) = &mut message.task
            && task.state == TaskState::Pending
        {
            task.state = TaskState::Completed;
        }
    }
    if message.kind == Kind::Task && message.task.is_none() {
        message.task = TaskId::parse(message.id.as_str()).ok().map(|id| TaskRef {
            id,
            state: TaskState::Pending,
            deadline: None,
            extra: Object::new(),
        });
    }
    Ok(ParsedMessage { message, read })
}

/// Returns the session that follows from the two agents and the subject.
pub(crate) fn derived_session(message: &Message) -> SessionId {
    SessionId::between(&message.from, &message.to, message.subject.as_deref().unwrap_or(NO_SUBJECT))
}

/// Whether a task in the owner's mailbox has an id that this office made for a task of the owner: then it is the
/// answer.
fn answers_task_of(owner: &AgentName, message: &Message) -> bool {
    let task = message.task.as_ref().filter(|_| message.kind == Kind::Task && message.from != *owner);
    task.is_some_and(|task| is_made_here(task.id.as_str(), owner))
}

/// Whether an id has the form of [`new_id`] in the nanobot layout: `msg_MILLISECONDS_FROM_NONCE`.
fn is_made_here(id: &str, from: &AgentName) -> bool {
    let rest = id.strip_prefix("msg_").and_then(|rest| rest.get(13..)?.strip_prefix('_'));
    let nonce = rest.and_then(|rest| rest.strip_prefix(&*name_in_id(from))?.strip_prefix('_'));
    nonce.is_some_and(|nonce| nonce.len() == 8 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// UUID namespace of the hashes below; it must never change.
const HASH_SPACE: Uuid = Uuid::from_u128(0x5d80_13fa_6be2_5c47_8c11_e9a4_720f_bd36);

/// Returns another id for a message whose own id is taken: other programs use the time in seconds as an id.
pub(crate) fn disambiguated_id(message: &Message, name: &str) -> MessageId {
    let text = format!("{name}\n{}\n{}", message.sent_at, message.text());
    let hash = Uuid::new_v5(&HASH_SPACE, text.as_bytes());
    MessageId::parse(&format!("{}~{:08x}", message.id, hash.as_fields().0)).unwrap_or_else(|_| hash.into())
}

/// Returns another id for a task whose own id is taken by another task of the same agent.
pub(crate) fn disambiguated_task_id(id: &TaskId, message: &Message, name: &str) -> TaskId {
    let text = format!("{}\n{name}\n{}", message.from, message.text());
    let hash = Uuid::new_v5(&HASH_SPACE, text.as_bytes());
    TaskId::parse(&format!("{id}~{:08x}", hash.as_fields().0)).unwrap_or_else(|_| hash.into())
}

/// Returns a hash that distinguishes messages in files of the same name.
pub(crate) fn fingerprint(message: &Message, name: &str) -> u32 {
    Uuid::new_v5(&HASH_SPACE, format!("{name}\n{}", message.text()).as_bytes()).as_fields().0
}

/// Returns a hash of the parts, which distinguishes messages with the same id.
pub(crate) fn content_hash(message: &Message) -> u32 {
    let parts = serde_json::to_vec(&message.parts).unwrap_or_default();
    Uuid::new_v5(&HASH_SPACE, &parts).as_fields().0
}

/// Gives a message from a file the id under which the office knows it; `None` if it is another message.
pub(crate) fn with_known_id(mut message: Message, name: &str, id: &MessageId) -> Option<Message> {
    if message.id != *id && disambiguated_id(&message, name) != *id {
        return None;
    }
    message.id = id.clone();
    Some(message)
}

/// Like [`with_known_id`], and `None` too if the log has another content for this id.
pub(crate) fn as_logged(message: Message, name: &str, logged: &Brief) -> Option<Message> {
    let is_other = logged.content.is_some_and(|content| content != content_hash(&message));
    if is_other { None } else { with_known_id(message, name, &logged.id) }
}

/// Whether this office made the id, so that no other message can have it.
pub(crate) fn has_unique_id(layout: Layout, name: &str, message: &Message) -> bool {
    match layout {
        Layout::Nanobot => is_made_here(message.id.as_str(), &message.from),
        // Timestamps with microseconds.
        Layout::Chipset => {
            let fraction = name.get(19..).and_then(|rest| rest.strip_prefix('.')?.as_bytes().get(..6));
            fraction.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
    }
}

/// Field of a rejected task's file that holds the reason.
pub(crate) const REASON: &str = "reason";

/// Whether this is a task that the office rejected when it was sent. Its recipient never sees it.
pub(crate) fn is_rejected(message: &Message) -> bool {
    message.kind == Kind::Task && message.task.as_ref().is_some_and(|task| task.state == TaskState::Rejected)
}

/// Whether a message reports on a task that its recipient gave. Other programs do that under any type.
pub(crate) fn is_report(message: &Message) -> bool {
    message.kind == Kind::TaskUpdate || (message.kind != Kind::Task && message.task.is_some())
}

/// Serializes a new, unread message.
pub(crate) fn write(layout: Layout, message: &Message) -> Result<Vec<u8>, WireError> {
    let mut message = message.clone();
    let derived = derived_session(&message);
    // A derived session is not written, nor the placeholder for a missing subject.
    message.session = message.session.filter(|session| *session != derived);
    message.subject = message.subject.filter(|subject| subject != NO_SUBJECT);
    match layout {
        Layout::Nanobot => nanobot::write(&message),
        Layout::Chipset => chipset::write(&message, false),
    }
}

/// Returns a name as it is written in an id, where spaces are not allowed. No name has a `+`, so this is unambiguous.
fn name_in_id(name: &AgentName) -> Cow<'_, str> {
    if name.is_plain() { Cow::Borrowed(name.as_str()) } else { Cow::Owned(name.as_str().replace(' ', "+")) }
}

/// Returns the id of a new message of `from`. In the chipset layout the id is the file name, so it may change when that
/// name is taken.
pub(crate) fn new_id(layout: Layout, at: Timestamp, from: &AgentName, nonce: u32) -> MessageId {
    let text = match layout {
        Layout::Nanobot => format!("msg_{:013}_{}_{nonce:08x}", at.as_millisecond().max(0), name_in_id(from)),
        Layout::Chipset => stem(layout, &chipset_name(at, from, 0)).to_owned(),
    };
    // A name has at most 100 safe characters, so this always parses.
    MessageId::parse(&text).unwrap_or_else(|_| MessageId::fresh(at))
}

/// Returns the file name of a new message for the n-th attempt to find a free one.
pub(crate) fn new_name(layout: Layout, at: Timestamp, from: &AgentName, nonce: u32, attempt: u32) -> String {
    match (layout, attempt) {
        (Layout::Nanobot, 0) => filename::nanobot(at, from),
        (Layout::Nanobot, attempt) => filename::nanobot_with_suffix(at, from, nonce.wrapping_add(attempt - 1)),
        (Layout::Chipset, attempt) => chipset_name(at, from, attempt),
    }
}

/// Has microseconds from the first attempt on: two mailboxes must not give one sender's messages the same id.
fn chipset_name(at: Timestamp, from: &AgentName, attempt: u32) -> String {
    filename::chipset(at, from, attempt + 1)
}

/// Returns the only file name that a message may have if it is sent under an idempotency key, carried, or a task
/// update. Its id is the [`new_id`] of the same time and nonce.
pub(crate) fn exact_name(layout: Layout, id: &MessageId, at: Timestamp, from: &AgentName, nonce: u32) -> String {
    match layout {
        Layout::Nanobot => filename::nanobot_with_suffix(at, from, nonce),
        Layout::Chipset => format!("{id}{}", filename::CHIPSET_ENDING),
    }
}

/// Returns the file name without its suffix.
pub(crate) fn stem(layout: Layout, name: &str) -> &str {
    name.strip_suffix(layout.suffix()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_core::{Draft, Priority};

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
    fn a_message_is_parsed_as_it_was_written() {
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
