//! Sends for the model of this mailbox. A message that it passes on to a third agent keeps its ttl and trace, whether
//! the model names the message or not.

use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::error::if_found;
use amb_core::mailbox::{Outgoing, Result, TaskFilter};
use amb_core::{AgentName, Code, Draft, Kind, Mailbox, MessageId, OfficeError, Timestamp};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::CallContext;
use crate::work::{HopState, WorkMail, most_restrictive};

/// A message that was sent, and the one that it counts as passing on.
pub(super) struct PostedMessage {
    pub(super) sent: Sent,
    pub(super) passes_on: Option<MessageId>,
}

/// Sends a draft. One that names no message counts as passing on what the model is working on, where it goes to another
/// agent than that came from. `user_request` lifts this, but only for what was refused before, so that a model that
/// always sets it changes nothing.
pub(super) async fn post(call: &CallContext, mut draft: Draft, user_request: bool) -> Result<PostedMessage> {
    let work = &call.seen.work;
    let to = draft.to.clone();
    let lifted = user_request && work.was_refused(&to);
    let named = draft.reply_to.clone();
    // An answer of a model that was woken is automatic: it costs hops, so that two models that wake each other stop.
    let now = Timestamp::now();
    let automatic = call.seen.activity.is_woken(now) && !lifted && is_answer(call, &mut draft, now);
    if automatic {
        draft = draft.automatic();
    }
    let is_named = (named.is_some() && draft.reply_to == named) || draft.relay_of.is_some();
    // A message to oneself passes nothing on.
    if draft.reply_to.is_none() && !is_named && !lifted && to != *call.office.me() {
        draft.relay_of = passed_on(call, &draft).await?;
    }
    let derived = draft.relay_of.clone().filter(|_| !is_named);
    let mut sent = call.office.send(draft.clone()).await;
    if let (Some(gone), Err(error)) = (derived.as_ref().or(draft.reply_to.as_ref()).filter(|_| !is_named), &sent)
        && error.code() == Code::NotFound
        && call.office.message(gone).await.is_err_and(|error| error.code() == Code::NotFound)
    {
        // The message has been removed meanwhile.
        work.forget(gone);
        (draft.relay_of, draft.reply_to) = (None, named);
        sent = call.office.send(draft).await;
    }
    if (derived.is_some() || automatic) && matches!(&sent, Err(error) if error.code() == Code::LoopRefused) {
        work.refused(&to);
    }
    let sent = sent?;
    work.sent(&to, &sent.session_id);
    Ok(PostedMessage { sent, passes_on: derived })
}

/// Whether a draft answers a message of its recipient: it names one, or the recipient wrote to the model lately. In the
/// second case `reply_to` is set to that message, whose hops the draft continues: otherwise two models that answer each
/// other under new subjects would never stop. A task counts as an answer where it goes back to an agent with an open
/// request; after an answer of that agent the next task starts with fresh hops.
fn is_answer(call: &CallContext, draft: &mut Draft, now: Timestamp) -> bool {
    if draft.relay_of.is_some() {
        return false;
    }
    let work = &call.seen.work;
    if draft.kind == Kind::Task {
        let request = work.request_from(&draft.to, call.seen.activity.since_ring(now));
        let is_back = request.is_some();
        draft.reply_to = request.or(draft.reply_to.take());
        return is_back;
    }
    if !draft.reply_to.as_ref().is_some_and(|id| work.is_from(id, &draft.to)) {
        let last = work.last_from(&draft.to, draft.session.as_ref()).or_else(|| work.last_from(&draft.to, None));
        draft.reply_to = last.or(draft.reply_to.take());
    }
    draft.reply_to.is_some()
}

/// The message that this draft passes on: of all that the model was shown lately, that a consumer of this agent has
/// claimed (a bridge which woke the model, in a process of its own), or that carries an open task, the most restrictive
/// one. Messages from the recipient, and answers to the caller's own, do not count.
async fn passed_on(call: &CallContext, draft: &Draft) -> Result<Option<MessageId>> {
    let (work, me) = (&call.seen.work, call.office.me());
    let given = TaskFilter { owned: Some(false), open: true, ..TaskFilter::default() };
    let (claimed, tasks) = tokio::join!(call.office.claimed(), call.office.tasks(given));
    let mut tasks = tasks?;
    tasks.retain(|task| task.assignee == *me);
    work.sync_with_office(&claimed?, &tasks);
    let mut mails = work.passed_on_to(&draft.to, draft.session.as_ref());
    let mut asking = JoinSet::new();
    for (at, mail) in mails.iter().enumerate().filter(|(_, mail)| mail.route.is_none() || !mail.is_checked) {
        let (office, mail) = (Arc::clone(&call.office), mail.clone());
        asking.spawn(async move { (at, fetch_route(&*office, &mail).await) });
    }
    while let Some(asked) = asking.join_next().await {
        let (at, fetch_route) = asked.map_err(OfficeError::internal)?;
        let mail = &mut mails[at];
        mail.route = fetch_route?;
        match &mail.route {
            Some(route) => work.set_route(&mail.id, route.clone()),
            None => work.forget(&mail.id),
        }
    }
    Ok(most_restrictive(&mails, &draft.to).map(|mail| mail.id.clone()))
}

/// Returns a message's remaining hops, from the office; `None` where it is gone, or answers the caller's own message.
async fn fetch_route(office: &dyn Mailbox, mail: &WorkMail) -> Result<Option<HopState>> {
    if let Some(id) = mail.reply_to.as_ref().filter(|_| !mail.is_checked)
        && office.message(id).await.is_ok_and(|answered| answered.message.from == *office.me())
    {
        return Ok(None);
    }
    if let Some(route) = &mail.route {
        return Ok(Some(route.clone()));
    }
    Ok(if_found(office.message(&mail.id).await)?.map(|found| HopState::of(&found.message)))
}

/// Sends mail to agents that do not run now, under the same rules as the model's other messages.
pub(super) struct MailFallback<'d> {
    call: &'d CallContext,
    passes_on: Mutex<Vec<MessageId>>,
}

impl<'d> MailFallback<'d> {
    pub(super) fn of(call: &'d CallContext) -> Self {
        Self { call, passes_on: Mutex::default() }
    }

    /// The messages that those sent count as passing on.
    pub(super) fn passed_on(self) -> Vec<MessageId> {
        self.passes_on.into_inner()
    }
}

#[async_trait]
impl Outgoing for MailFallback<'_> {
    fn me(&self) -> &AgentName {
        self.call.office.me()
    }

    async fn post(&self, draft: Draft) -> Result<Sent> {
        let posted = post(self.call, draft, false).await?;
        let mut passes_on = self.passes_on.lock();
        if let Some(id) = posted.passes_on.filter(|id| !passes_on.contains(id)) {
            passes_on.push(id);
        }
        Ok(posted.sent)
    }
}
