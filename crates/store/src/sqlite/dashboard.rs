//! What the pages for people read from SQLite.

mod household;
mod sign_in;
mod talk;
mod ties;
mod work;

use amb_core::doc::{Group, MessageWithReceipts, NumberedLine};
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, MessageId, SessionId, Task, TaskId, Timestamp};
use async_trait::async_trait;

use super::SqliteStore;
use crate::dashboard::{
    Browser, Conversation, ConversationLine, ConversationQuery, Dashboard, HouseholdConnection, HouseholdKey, Lane,
    Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer,
};
use crate::error::Result;
use crate::outgoing::{message_uuid, session_uuid};
use crate::tasks::task_uuid;
use crate::types::{Agent, KeyHash};
use crate::verbs::groups_by_id;

#[async_trait]
impl Dashboard for SqliteStore {
    async fn open_link(&self, agent: &Agent, key: KeyHash, link: SignIn, now: Timestamp) -> Result<()> {
        let agent = agent.key.0;
        self.writer()?.write_own(move |tx| sign_in::open_link(&tx.db, agent, key, link, now)).await
    }

    async fn use_link(&self, link: KeyHash, browser: SignIn, now: Timestamp) -> Result<bool> {
        self.writer()?.write_own(move |tx| sign_in::use_link(&tx.db, link, browser, now)).await
    }

    async fn browser(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>> {
        self.readers().look(|db| sign_in::browser(db, hash, now)).await
    }

    async fn sign_out(&self, hash: KeyHash) -> Result<()> {
        self.writer()?.write_own(move |tx| sign_in::sign_out(&tx.db, hash)).await
    }

    async fn viewer(&self, agent: &Agent) -> Result<Viewer> {
        self.readers().look(|db| sign_in::viewer(db, agent)).await
    }

    async fn set_operator(&self, name: &AgentName, operator: bool, now: Timestamp) -> Result<()> {
        let name = name.clone();
        self.writer()?.write_own(move |tx| sign_in::set_operator(&tx.db, &name, operator, now)).await
    }

    async fn members(&self, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>> {
        self.readers().read(move |db| household::members(db, household, now)).await
    }

    async fn member(
        &self,
        household: HouseholdKey,
        name: &AgentName,
        now: Timestamp,
    ) -> Result<(Agent, MemberDetails)> {
        let name = name.clone();
        self.readers().read(move |db| household::member(db, household, &name, now)).await
    }

    async fn needs(&self, household: HouseholdKey, now: Timestamp) -> Result<Needs> {
        self.readers().read(move |db| household::needs(db, household, now)).await
    }

    async fn said(&self, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>> {
        self.readers().read(move |db| talk::said(db, household, limit)).await
    }

    async fn conversations(&self, household: HouseholdKey, query: ConversationQuery) -> Result<Vec<ConversationLine>> {
        self.readers().read(move |db| talk::conversations(db, household, &query)).await
    }

    async fn find_said(&self, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>> {
        let text = text.to_owned();
        self.readers().read(move |db| talk::find(db, household, &text, limit)).await
    }

    async fn conversation(
        &self,
        household: HouseholdKey,
        session: &SessionId,
        before: Option<&MessageId>,
        limit: u32,
    ) -> Result<Conversation> {
        let (session, before) = (session_uuid(session)?, before.map(message_uuid).transpose()?);
        self.readers().read(move |db| talk::conversation(db, household, session, before, limit)).await
    }

    async fn mail(&self, household: HouseholdKey, id: &MessageId) -> Result<MessageWithReceipts> {
        let id = message_uuid(id)?;
        self.readers().read(move |db| talk::mail(db, household, id)).await
    }

    async fn board(&self, household: HouseholdKey, each: u32) -> Result<Vec<Lane>> {
        self.readers().read(move |db| work::board(db, household, each)).await
    }

    async fn chain(&self, household: HouseholdKey, id: &TaskId) -> Result<Vec<Task>> {
        let id = task_uuid(id)?;
        self.readers().read(move |db| work::chain(db, household, id)).await
    }

    async fn links(&self, household: HouseholdKey, limit: u32) -> Result<Vec<HouseholdConnection>> {
        self.readers().read(move |db| ties::links(db, household, limit)).await
    }

    async fn member_groups(&self, household: HouseholdKey) -> Result<Vec<Group>> {
        let ids = self.readers().read(move |db| ties::groups(db, household)).await?;
        groups_by_id(self, ids).await
    }

    async fn transcripts(&self, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>> {
        self.readers().read(move |db| ties::transcripts(db, household, limit)).await
    }

    async fn transcript_lines(
        &self,
        household: HouseholdKey,
        owner: &AgentName,
        key: &TranscriptKey,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<NumberedLine>> {
        let (owner, key) = (owner.clone(), key.clone());
        self.readers().read(move |db| ties::transcript_lines(db, household, &owner, &key, before, limit)).await
    }

    async fn size(&self) -> Result<OfficeSize> {
        self.readers().read(|db| household::size(db)).await
    }
}
