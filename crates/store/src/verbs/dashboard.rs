//! The reads of the dashboard: one household at a time, each page from indexes.
//!
//! A person sees the agents of their household and the mail that they sent or got, as those agents see it. Nothing here
//! marks mail as read.

mod household;
mod sign_in;
mod talk;
mod ties;
mod types;
mod work;

use amb_core::doc::{Group, MessageWithReceipts, NumberedLine};
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, MessageId, SessionId, Task, TaskId, TaskState, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

pub use types::{
    Browser, Conversation, ConversationLine, ConversationQuery, HouseholdConnection, HouseholdKey, Lane, MAX_COUNTED,
    MAX_MEMBERS, Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer, WaitingRequest,
};

use crate::engine::{Changes, Engine, ReadLength, read, write_unlogged};
use crate::error::Result;
use crate::outgoing::{message_uuid, session_uuid};
use crate::task_row::task_uuid;
use crate::types::{Agent, KeyHash, to_micros};

/// The dashboard's sign-ins and reads.
#[async_trait]
pub trait DashboardVerbs: Engine {
    // Sign-in.

    /// Stores a sign-in link for the agent with this key. Beyond a maximum the oldest links are deleted.
    async fn open_link(&self, agent: &Agent, key: KeyHash, link: SignIn, now: Timestamp) -> Result<()> {
        let asked = (agent.key.0, key, link, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (agent, key, link, now)| {
            sign_in::open_link(tx, *agent, *key, *link, *now).boxed()
        })
        .await
    }

    /// Exchanges a link for a browser session. `false` where the link is unknown, used or expired.
    async fn use_link(&self, link: KeyHash, browser: SignIn, now: Timestamp) -> Result<bool> {
        let asked = (link, browser, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (link, browser, now)| {
            sign_in::use_link(tx, *link, *browser, *now).boxed()
        })
        .await
    }

    /// Returns the signed-in browser with this secret.
    async fn browser(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>> {
        read(self, ReadLength::Short, (hash, now), |db, (hash, now)| sign_in::browser(db, *hash, *now).boxed()).await
    }

    /// Signs a browser out.
    async fn sign_out(&self, hash: KeyHash) -> Result<()> {
        write_unlogged(self, Changes::Logs, hash, |tx, hash| sign_in::sign_out(tx, *hash).boxed()).await
    }

    /// Returns what this agent may see.
    async fn viewer(&self, agent: &Agent) -> Result<Viewer> {
        read(self, ReadLength::Short, agent.clone(), |db, agent| sign_in::viewer(db, agent).boxed()).await
    }

    /// Sets whether an agent is an operator, who sees the office's health. `not_found` where no agent has this name.
    async fn set_operator(&self, name: &AgentName, operator: bool, now: Timestamp) -> Result<()> {
        let asked = (name.clone(), operator, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (name, operator, now)| {
            sign_in::set_operator(tx, name, *operator, *now).boxed()
        })
        .await
    }

    /// Returns the newest messages of the whole office before this one, the first thousand characters of each. For
    /// operators, where the office allows it.
    async fn office_mail(&self, before: Option<&MessageId>, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (before.map(message_uuid).transpose()?, limit);
        read(self, ReadLength::Long, asked, |db, (before, limit)| talk::office_mail(db, *before, *limit).boxed()).await
    }

    // One household.

    /// Returns its agents by name, at most [`MAX_MEMBERS`].
    async fn members(&self, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>> {
        let asked = (household, now);
        read(self, ReadLength::Long, asked, |db, (household, now)| household::members(db, *household, *now).boxed())
            .await
    }

    /// Returns one of its agents, to act in its name. `not_found` where it has no agent of this name.
    async fn member(
        &self,
        household: HouseholdKey,
        name: &AgentName,
        now: Timestamp,
    ) -> Result<(Agent, MemberDetails)> {
        let asked = (household, name.clone(), now);
        read(self, ReadLength::Long, asked, |db, (household, name, now)| {
            household::member(db, *household, name, *now).boxed()
        })
        .await
    }

    /// Returns what needs a person's attention.
    async fn needs(&self, household: HouseholdKey, now: Timestamp) -> Result<Needs> {
        let asked = (household, now);
        read(self, ReadLength::Long, asked, |db, (household, now)| household::needs(db, *household, *now).boxed()).await
    }

    /// Returns the last messages, newest first.
    async fn said(&self, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (household, limit);
        read(self, ReadLength::Long, asked, |db, (household, limit)| talk::said(db, *household, *limit).boxed()).await
    }

    /// Returns conversations, the one with the newest message first.
    async fn conversations(&self, household: HouseholdKey, query: ConversationQuery) -> Result<Vec<ConversationLine>> {
        let asked = (household, query);
        read(self, ReadLength::Long, asked, |db, (household, query)| talk::conversations(db, *household, query).boxed())
            .await
    }

    /// Returns messages with these words, newest first. Only the newest hits of the whole office are searched, so mail
    /// of this household may not be found by words that are common in all.
    async fn find_said(&self, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (household, text.to_owned(), limit);
        read(self, ReadLength::Long, asked, |db, (household, text, limit)| {
            talk::find(db, *household, text, *limit).boxed()
        })
        .await
    }

    /// Returns a page of a conversation before this message. `not_found` where no agent of the household is in it.
    async fn conversation(
        &self,
        household: HouseholdKey,
        session: &SessionId,
        before: Option<&MessageId>,
        limit: u32,
    ) -> Result<Conversation> {
        let asked = (household, session_uuid(session)?, before.map(message_uuid).transpose()?, limit);
        read(self, ReadLength::Long, asked, |db, (household, session, before, limit)| {
            talk::conversation(db, *household, *session, *before, *limit).boxed()
        })
        .await
    }

    /// Returns a message that an agent of the household sent or received.
    async fn mail(&self, household: HouseholdKey, id: &MessageId) -> Result<MessageWithReceipts> {
        let asked = (household, message_uuid(id)?);
        read(self, ReadLength::Long, asked, |db, (household, id)| talk::mail(db, *household, *id).boxed()).await
    }

    /// Returns its tasks by state, or those of one state only; at most `each` of one state.
    async fn board(&self, household: HouseholdKey, only: Option<TaskState>, each: u32) -> Result<Vec<Lane>> {
        let asked = (household, only, each);
        read(self, ReadLength::Long, asked, |db, (household, only, each)| {
            work::board(db, *household, *only, *each).boxed()
        })
        .await
    }

    /// Returns a task, then its ancestors and subtasks that concern the household.
    async fn chain(&self, household: HouseholdKey, id: &TaskId) -> Result<Vec<Task>> {
        let asked = (household, task_uuid(id)?);
        read(self, ReadLength::Long, asked, |db, (household, id)| work::chain(db, *household, *id).boxed()).await
    }

    /// Returns the connections of its agents, the one that changed last first.
    async fn links(&self, household: HouseholdKey, now: Timestamp, limit: u32) -> Result<Vec<HouseholdConnection>> {
        let asked = (household, now, limit);
        read(self, ReadLength::Long, asked, |db, (household, now, limit)| {
            ties::connections(db, *household, *now, *limit).boxed()
        })
        .await
    }

    /// Returns the groups that its agents are in.
    async fn member_groups(&self, household: HouseholdKey) -> Result<Vec<Group>> {
        read(self, ReadLength::Long, household, |db, household| ties::groups(db, *household).boxed()).await
    }

    /// Returns the transcripts that its agents own or may read.
    async fn transcripts(&self, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>> {
        let asked = (household, limit);
        read(self, ReadLength::Long, asked, |db, (household, limit)| ties::transcripts(db, *household, *limit).boxed())
            .await
    }

    /// Returns the last lines of a transcript before a number, oldest first.
    async fn transcript_lines(
        &self,
        household: HouseholdKey,
        owner: &AgentName,
        key: &TranscriptKey,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<NumberedLine>> {
        let asked = (household, owner.clone(), key.clone(), before, limit);
        read(self, ReadLength::Long, asked, |db, (household, owner, key, before, limit)| {
            ties::transcript_lines(db, *household, owner, key, *before, *limit).boxed()
        })
        .await
    }

    // The office.

    /// Returns its size.
    async fn size(&self) -> Result<OfficeSize> {
        read(self, ReadLength::Long, (), |db, ()| household::size(db).boxed()).await
    }
}

impl<E: Engine> DashboardVerbs for E {}
