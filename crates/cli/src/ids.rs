//! Ids as people type them: whole, or a unique prefix.

use std::collections::BTreeSet;

use amb_client::Client;
use amb_core::doc::{HouseholdSession, Inbox, Machine, SessionSummary};
use amb_core::mailbox::{Mailbox, TaskFilter};
use amb_core::suggest::nearest;
use amb_core::{Code, MessageId, OfficeError, SessionId, Task, TaskId};

use uuid::Uuid;

use crate::failure::Failure;
use crate::output::preview;

/// The most pages of an inbox that are searched for a prefix; older sessions need the whole id.
const MAX_PAGES: usize = 50;
/// The most candidates that are listed for an ambiguous prefix.
const MAX_LISTED: usize = 5;
/// The fewest characters of a shortened id.
const MIN_SHORT: usize = 8;
/// Ids of other systems may be any text; one that is shorter than this is taken for a name or a prefix.
const MIN_FOREIGN: usize = 12;
/// The length of a whole id of ours, a UUID with hyphens.
const WHOLE: usize = 36;

/// Whether this is a whole id, so that no candidates are needed.
fn is_whole(text: &str) -> bool {
    text.len() == WHOLE && uuid::Uuid::parse_str(text).is_ok()
}

/// The candidate that equals the text, else the only one that begins with it. Each has a label for people.
fn unique_match(what: &str, wanted: &str, candidates: &[(String, String)]) -> Result<Option<String>, Failure> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (id, label) in candidates {
        if id == wanted {
            return Ok(Some(id.clone()));
        }
        if id.starts_with(wanted) && seen.insert(id) {
            found.push((id, label));
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [(only, _)] => Ok(Some((*only).clone())),
        several => {
            let listed = several.iter().take(MAX_LISTED).map(|(id, label)| format!("{id} ({label})"));
            let mut listed = listed.collect::<Vec<_>>().join(", ");
            if several.len() > MAX_LISTED {
                listed.push_str(&format!(" and {} more", several.len() - MAX_LISTED));
            }
            Err(Failure::usage(format!("{wanted:?} is the beginning of several {what}: {listed}; say more of it")))
        }
    }
}

/// The inbox with further pages, up to the limit.
pub(crate) async fn whole_inbox(mailbox: &dyn Mailbox) -> Result<Inbox, Failure> {
    let mut inbox = mailbox.inbox(false).await?;
    for _ in 1..MAX_PAGES {
        let Some(next) = inbox.next.take() else { break };
        let page = mailbox.inbox_after(false, &next).await?;
        inbox.sessions.extend(page.sessions);
        inbox.next = page.next;
    }
    Ok(inbox)
}

fn label(session: &SessionSummary) -> String {
    format!("{}, {:?}", session.other_agent_name, preview(&session.subject, 30))
}

/// Whether this is the other side of the session: an agent, or a group by its name.
pub(crate) fn is_with(session: &SessionSummary, name: &str) -> bool {
    session.other_agent_name.as_str() == name || session.group.as_deref() == Some(name)
}

/// The session that a person names: by its id, a prefix of it, or the name of the agent or group, whose newest session
/// it is then.
pub(crate) async fn session(mailbox: &dyn Mailbox, text: &str) -> Result<SessionId, Failure> {
    if is_whole(text) {
        return Ok(parse(text)?);
    }
    let inbox = whole_inbox(mailbox).await?;
    let candidates: Vec<_> =
        inbox.sessions.iter().map(|session| (session.session_id.to_string(), label(session))).collect();
    if let Some(exact) = inbox.sessions.iter().find(|session| session.session_id.as_str() == text) {
        return Ok(exact.session_id.clone());
    }
    if let Some(newest) = inbox.sessions.iter().find(|session| is_with(session, text)) {
        return Ok(newest.session_id.clone());
    }
    if let Some(id) = unique_match("sessions", text, &candidates)? {
        return Ok(parse(&id)?);
    }
    let names = inbox.sessions.iter().map(|session| session.other_agent_name.to_string());
    let mut names: BTreeSet<String> = names.collect();
    names.extend(mailbox.agents().await?.into_iter().map(|agent| agent.name.to_string()));
    if names.contains(text) {
        return Err(Failure::not_found(format!("no conversation with {text} yet; `amb send {text} TEXT` begins one")));
    }
    match nearest(text, names.iter().map(String::as_str)) {
        Some(near) => Err(Failure::not_found(format!("no session or agent {text:?}; did you mean {near:?}?"))),
        // Another system's id, perhaps of a session that is too old to be listed: left to the office.
        None if text.len() >= MIN_FOREIGN => Ok(parse(text)?),
        None => Err(Failure::not_found(format!(
            "no session or agent {text:?}; `amb inbox` lists your conversations, `amb agents` whom you can write to"
        ))),
    }
}

/// The session with the newest unread mail; where all is read, the newest.
pub(crate) async fn newest_session(mailbox: &dyn Mailbox) -> Result<SessionId, Failure> {
    let inbox = whole_inbox(mailbox).await?;
    let unread = inbox.sessions.iter().find(|session| session.unread_count > 0);
    let newest = unread.or(inbox.sessions.first()).map(|session| session.session_id.clone());
    newest.ok_or_else(|| OfficeError::not_found("no mail; `amb send AGENT TEXT` begins a conversation").into())
}

/// The session of the household that its person names.
pub(crate) async fn household_session(person: &Client, text: &str) -> Result<SessionId, Failure> {
    if is_whole(text) {
        return Ok(parse(text)?);
    }
    let labelled = |session: HouseholdSession| {
        let between = session.between.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        (session.session_id.to_string(), format!("{between}, {:?}", preview(&session.subject, 30)))
    };
    let found = person.household_sessions().await?;
    let candidates: Vec<_> = found.sessions.into_iter().map(labelled).collect();
    let id = unique_match("sessions", text, &candidates)?.ok_or_else(|| {
        Failure::not_found(format!("no session {text:?} in your household; `amb household sessions` lists them"))
    })?;
    Ok(parse(&id)?)
}

/// The machine that a person names: by its label, where only one with a valid token has it, or by its id.
pub(crate) fn machine(machines: &[Machine], text: &str) -> Result<Uuid, Failure> {
    let valid = || machines.iter().filter(|machine| machine.revoked_at.is_none());
    let named: Vec<_> = valid().filter(|machine| machine.label == text).collect();
    if let [only] = named.as_slice() {
        return Ok(only.id);
    }
    let candidates: Vec<_> = machines.iter().map(|machine| (machine.id.to_string(), machine.label.clone())).collect();
    if let Some(id) = unique_match("machines", text, &candidates)? {
        return id.parse().map_err(|_| Failure::usage(format!("{id:?} is no id of a machine")));
    }
    let detail = match named.as_slice() {
        [] => match nearest(text, valid().map(|machine| machine.label.as_str())) {
            Some(near) => format!("no machine {text:?} in your household; did you mean {near:?}?"),
            None => format!("no machine {text:?} in your household; `amb household` lists them"),
        },
        _ => format!("{} machines are called {text:?}; name it by its id, which `amb household` shows", named.len()),
    };
    Err(Failure::not_found(detail))
}

/// The task of the household that its person names.
pub(crate) async fn household_task(person: &Client, text: &str) -> Result<TaskId, Failure> {
    if is_whole(text) {
        return Ok(parse(text)?);
    }
    task_among(&person.household_tasks(false, None).await?.tasks, text, "amb task list --household")
}

/// The task that a person names.
pub(crate) async fn task(mailbox: &dyn Mailbox, text: &str) -> Result<TaskId, Failure> {
    if is_whole(text) {
        return Ok(parse(text)?);
    }
    task_among(&mailbox.tasks(TaskFilter::default()).await?, text, "amb task list")
}

fn task_among(tasks: &[Task], text: &str, list: &str) -> Result<TaskId, Failure> {
    let candidates: Vec<_> = tasks
        .iter()
        .map(|task| {
            let subject = preview(task.subject.as_deref().unwrap_or_default(), 30);
            (task.id.to_string(), format!("{} for {}, {subject:?}, {}", task.owner, task.assignee, task.state))
        })
        .collect();
    match unique_match("tasks", text, &candidates)? {
        Some(id) => Ok(parse(&id)?),
        None => match nearest(text, candidates.iter().map(|(id, _)| id.as_str())) {
            Some(near) => {
                Err(Failure::not_found(format!("no task {text:?}; did you mean {near:?}? `{list}` shows yours")))
            }
            None if text.len() >= MIN_FOREIGN => Ok(parse(text)?),
            None => Err(Failure::not_found(format!(
                "no task {text:?}; `amb task list` shows those that you assigned or were assigned"
            ))),
        },
    }
}

/// The message that a person names, among the newest ones of each session.
pub(crate) async fn message(mailbox: &dyn Mailbox, text: &str) -> Result<MessageId, Failure> {
    if is_whole(text) {
        return Ok(parse(text)?);
    }
    let inbox = whole_inbox(mailbox).await?;
    let candidates: Vec<_> = inbox
        .sessions
        .iter()
        .flat_map(|session| &session.recent_messages)
        .map(|message| {
            (message.id.to_string(), format!("{}: {:?}", message.sender_name, preview(&message.content, 30)))
        })
        .collect();
    if let Some(id) = unique_match("messages", text, &candidates)? {
        return Ok(parse(&id)?);
    }
    // Perhaps another system's id, of a message that is too old to be listed. At a server no id looks like that.
    let id = parse(text)?;
    match mailbox.message(&id).await {
        Err(error) if matches!(error.code(), Code::NotFound | Code::Invalid) => Err(Failure::not_found(format!(
            "no message {text:?} of yours; `amb read AGENT --json` shows the ids of messages"
        ))),
        found => Ok(found.map(|_| id)?),
    }
}

/// The message that an option names, where it was given.
pub(crate) async fn optional_message(mailbox: &dyn Mailbox, text: Option<&str>) -> Result<Option<MessageId>, Failure> {
    match text {
        Some(text) => Ok(Some(message(mailbox, text).await?)),
        None => Ok(None),
    }
}

fn parse<T: std::str::FromStr<Err = amb_core::id::BadId>>(text: &str) -> Result<T, OfficeError> {
    text.parse().map_err(|error: amb_core::id::BadId| OfficeError::invalid(format!("{text:?}: {error}")))
}

/// How the ids of one list are shortened so that a person can distinguish and type them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short(usize);

impl Short {
    /// Short enough to type and long enough that these ids stay distinct; whole for programs.
    pub(crate) fn of<'a>(ids: impl IntoIterator<Item = &'a str>, for_person: bool) -> Self {
        if !for_person {
            return Self(usize::MAX);
        }
        let mut ids: Vec<&str> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let common =
            ids.windows(2).map(|pair| pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count());
        Self(common.max().map_or(MIN_SHORT, |common| (common + 1).max(MIN_SHORT)))
    }

    pub(crate) fn show(self, id: &str) -> String {
        let mut cut: String = id.chars().take(self.0).collect();
        // A hyphen at the end would distinguish nothing.
        if cut.ends_with('-') && cut.len() < id.len() {
            cut = id.chars().take(self.0 + 1).collect();
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ids: &[&str]) -> Vec<(String, String)> {
        ids.iter().map(|id| ((*id).to_owned(), "ann".to_owned())).collect()
    }

    #[test]
    fn a_unique_prefix_identifies_an_id() {
        let ids = candidates(&["0199aa", "0199ab", "02"]);
        assert_eq!(unique_match("tasks", "02", &ids).unwrap().as_deref(), Some("02"));
        assert_eq!(unique_match("tasks", "0199ab", &ids).unwrap().as_deref(), Some("0199ab"));
        assert_eq!(unique_match("tasks", "03", &ids).unwrap(), None);
        let words = unique_match("tasks", "0199", &ids).unwrap_err().detail();
        assert!(words.contains("0199aa (ann), 0199ab (ann)"), "{words}");
        let whole = candidates(&["01", "0199"]);
        assert_eq!(unique_match("tasks", "01", &whole).unwrap().as_deref(), Some("01"), "a whole id is no beginning");
        assert_eq!(unique_match("tasks", "019", &candidates(&["0199", "0199"])).unwrap().as_deref(), Some("0199"));
    }

    #[test]
    fn short_ids_of_one_list_differ() {
        let ids = ["0199c0de-1a2b-7000-8000-000000000001", "0199c0de-1a2c-7000-8000-000000000002"];
        let short = Short::of(ids, true);
        assert_eq!(ids.map(|id| short.show(id)), ["0199c0de-1a2b", "0199c0de-1a2c"]);
        assert_eq!(Short::of([ids[0]], true).show(ids[0]), "0199c0de");
        assert_eq!(Short::of(ids, false).show(ids[0]), ids[0], "programs get the whole id");
        let near = ["0199c0de-1", "0199c0de-2"];
        assert_eq!(Short::of(near, true).show(near[0]), "0199c0de-1");
    }
}
