//! What the pages for people read: one household at a time, each page from indexes.
//!
//! A person sees the agents of their household and what was sent by them or came to them, as those agents see it. Nothing here
//! marks mail as read.

mod household;
mod sign_in;
mod talk;
mod ties;
mod types;
mod work;

use amb_core::doc::{Group, MessageWithReceipts, NumberedLine};
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, MessageId, SessionId, Task, TaskId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

pub use types::{
    Browser, Conversation, ConversationLine, ConversationQuery, HouseholdConnection, HouseholdKey, Lane, MAX_COUNTED,
    MAX_MEMBERS, Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer, WaitingRequest,
};

use crate::engine::{Changes, Engine, ReadLength, read, write};
use crate::error::Result;
use crate::outgoing::{message_uuid, session_uuid};
use crate::task_row::task_uuid;
use crate::types::{Agent, KeyHash, to_micros};

/// What the pages for people read and remember.
#[async_trait]
pub trait DashboardVerbs: Engine {
    // Signing in.

    /// Notes a link for the agent that came with this key. Of many that wait the oldest go.
    async fn open_link(&self, agent: &Agent, key: KeyHash, link: SignIn, now: Timestamp) -> Result<()> {
        let asked = (agent.key.0, key, link, to_micros(now));
        let opened = write(self, Changes::Logs, asked, |tx, (agent, key, link, now)| {
            sign_in::open_link(tx, *agent, *key, *link, *now).boxed()
        });
        opened.await.map(|done| done.answer)
    }

    /// Uses a link up, and notes the browser that did. `false` where there is no such link, or no longer.
    async fn use_link(&self, link: KeyHash, browser: SignIn, now: Timestamp) -> Result<bool> {
        let asked = (link, browser, to_micros(now));
        let used = write(self, Changes::Logs, asked, |tx, (link, browser, now)| {
            sign_in::use_link(tx, *link, *browser, *now).boxed()
        });
        used.await.map(|done| done.answer)
    }

    /// The browser with this secret, where it is signed in.
    async fn browser(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>> {
        read(self, ReadLength::Short, (hash, now), |db, (hash, now)| sign_in::browser(db, *hash, *now).boxed()).await
    }

    /// Signs a browser out.
    async fn sign_out(&self, hash: KeyHash) -> Result<()> {
        let done = write(self, Changes::Logs, hash, |tx, hash| sign_in::sign_out(tx, *hash).boxed());
        done.await.map(|done| done.answer)
    }

    /// Who this is to the pages.
    async fn viewer(&self, agent: &Agent) -> Result<Viewer> {
        read(self, ReadLength::Short, agent.clone(), |db, agent| sign_in::viewer(db, agent).boxed()).await
    }

    /// Says whether an agent sees the office's health. `not_found` where there is none of this name.
    async fn set_operator(&self, name: &AgentName, operator: bool, now: Timestamp) -> Result<()> {
        let asked = (name.clone(), operator, to_micros(now));
        let set = write(self, Changes::Logs, asked, |tx, (name, operator, now)| {
            sign_in::set_operator(tx, name, *operator, *now).boxed()
        });
        set.await.map(|done| done.answer)
    }

    /// The newest messages of the whole office, or those before this one: the first thousand characters of each. For an
    /// operator, where the office was started so.
    async fn office_mail(&self, before: Option<&MessageId>, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (before.map(message_uuid).transpose()?, limit);
        read(self, ReadLength::Long, asked, |db, (before, limit)| talk::office_mail(db, *before, *limit).boxed()).await
    }

    // What a household sees.

    /// Its agents by name, [`MAX_MEMBERS`] at most.
    async fn members(&self, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>> {
        let asked = (household, now);
        read(self, ReadLength::Long, asked, |db, (household, now)| household::members(db, *household, *now).boxed())
            .await
    }

    /// One of its agents, for whoever acts in its name. `not_found` where there is none of this name in it.
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

    /// What needs a person.
    async fn needs(&self, household: HouseholdKey, now: Timestamp) -> Result<Needs> {
        let asked = (household, now);
        read(self, ReadLength::Long, asked, |db, (household, now)| household::needs(db, *household, *now).boxed()).await
    }

    /// What was said last, newest first.
    async fn said(&self, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (household, limit);
        read(self, ReadLength::Long, asked, |db, (household, limit)| talk::said(db, *household, *limit).boxed()).await
    }

    /// Conversations, the one with the newest message first.
    async fn conversations(&self, household: HouseholdKey, query: ConversationQuery) -> Result<Vec<ConversationLine>> {
        let asked = (household, query);
        read(self, ReadLength::Long, asked, |db, (household, query)| talk::conversations(db, *household, query).boxed())
            .await
    }

    /// What was said with these words, newest first: looked for among the newest hits of all households, so that what is
    /// rare in this one may not be found among words that are common in all.
    async fn find_said(&self, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>> {
        let asked = (household, text.to_owned(), limit);
        read(self, ReadLength::Long, asked, |db, (household, text, limit)| {
            talk::find(db, *household, text, *limit).boxed()
        })
        .await
    }

    /// A page of a conversation, up to the message before this one. `not_found` where nobody of the household is in it.
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

    /// One message that an agent of the household sent or received.
    async fn mail(&self, household: HouseholdKey, id: &MessageId) -> Result<MessageWithReceipts> {
        let asked = (household, message_uuid(id)?);
        read(self, ReadLength::Long, asked, |db, (household, id)| talk::mail(db, *household, *id).boxed()).await
    }

    /// Its tasks by state, `each` of a state at most.
    async fn board(&self, household: HouseholdKey, each: u32) -> Result<Vec<Lane>> {
        let asked = (household, each);
        read(self, ReadLength::Long, asked, |db, (household, each)| work::board(db, *household, *each).boxed()).await
    }

    /// A task with those it is a piece of and its own pieces, as far as they concern the household; the task itself first.
    async fn chain(&self, household: HouseholdKey, id: &TaskId) -> Result<Vec<Task>> {
        let asked = (household, task_uuid(id)?);
        read(self, ReadLength::Long, asked, |db, (household, id)| work::chain(db, *household, *id).boxed()).await
    }

    /// The connections of its agents, the one that changed last first.
    async fn links(&self, household: HouseholdKey, limit: u32) -> Result<Vec<HouseholdConnection>> {
        let asked = (household, limit);
        read(self, ReadLength::Long, asked, |db, (household, limit)| ties::links(db, *household, *limit).boxed()).await
    }

    /// The groups that its agents are in.
    async fn member_groups(&self, household: HouseholdKey) -> Result<Vec<Group>> {
        read(self, ReadLength::Long, household, |db, household| ties::groups(db, *household).boxed()).await
    }

    /// The transcripts that its agents own or may read.
    async fn transcripts(&self, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>> {
        let asked = (household, limit);
        read(self, ReadLength::Long, asked, |db, (household, limit)| ties::transcripts(db, *household, *limit).boxed())
            .await
    }

    /// The last lines of a transcript before a place, oldest first.
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

    /// How large it is.
    async fn size(&self) -> Result<OfficeSize> {
        read(self, ReadLength::Long, (), |db, ()| household::size(db).boxed()).await
    }
}

impl<E: Engine> DashboardVerbs for E {}
