//! What the pages for people read from PostgreSQL.

mod household;
mod sign_in;
mod talk;
mod ties;
mod work;

use amb_core::doc::{Group, MessageWithReceipts, NumberedLine};
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, MessageId, SessionId, Task, TaskId, Timestamp};
use async_trait::async_trait;

use super::PostgresStore;
use super::transact::transact;
use crate::dashboard::{
    Browser, Conversation, ConversationLine, ConversationQuery, Dashboard, HouseholdConnection, HouseholdKey, Lane,
    Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer,
};
use crate::error::Result;
use crate::outgoing::{message_uuid, session_uuid};
use crate::tasks::task_uuid;
use crate::types::{Agent, KeyHash, to_micros};
use crate::verbs::groups_by_id;

#[async_trait]
impl Dashboard for PostgresStore {
    async fn open_link(&self, agent: &Agent, key: KeyHash, mut link: SignIn, now: Timestamp) -> Result<()> {
        link.until = to_micros(link.until);
        Ok(transact!(self, tx => sign_in::open_link(&tx, agent.key.0, key, link, now))?)
    }

    async fn use_link(&self, link: KeyHash, mut browser: SignIn, now: Timestamp) -> Result<bool> {
        browser.until = to_micros(browser.until);
        Ok(transact!(self, tx => sign_in::use_link(&tx, link, browser, now))?)
    }

    async fn browser(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>> {
        Ok(transact!(self, tx => sign_in::browser(&tx, hash, now))?)
    }

    async fn sign_out(&self, hash: KeyHash) -> Result<()> {
        Ok(transact!(self, tx => sign_in::sign_out(&tx, hash))?)
    }

    async fn viewer(&self, agent: &Agent) -> Result<Viewer> {
        Ok(transact!(self, tx => sign_in::viewer(&tx, agent))?)
    }

    async fn set_operator(&self, name: &AgentName, operator: bool, now: Timestamp) -> Result<()> {
        Ok(transact!(self, tx => sign_in::set_operator(&tx, name, operator, now))?)
    }

    async fn members(&self, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>> {
        Ok(transact!(self, tx => household::members(&tx, household, now))?)
    }

    async fn member(
        &self,
        household: HouseholdKey,
        name: &AgentName,
        now: Timestamp,
    ) -> Result<(Agent, MemberDetails)> {
        Ok(transact!(self, tx => household::member(&tx, household, name, now))?)
    }

    async fn needs(&self, household: HouseholdKey, now: Timestamp) -> Result<Needs> {
        Ok(transact!(self, tx => household::needs(&tx, household, now))?)
    }

    async fn said(&self, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>> {
        Ok(transact!(self, tx => talk::said(&tx, household, limit))?)
    }

    async fn conversations(&self, household: HouseholdKey, query: ConversationQuery) -> Result<Vec<ConversationLine>> {
        Ok(transact!(self, tx => talk::conversations(&tx, household, &query))?)
    }

    async fn find_said(&self, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>> {
        Ok(transact!(self, tx => talk::find(&tx, household, text, limit))?)
    }

    async fn conversation(
        &self,
        household: HouseholdKey,
        session: &SessionId,
        before: Option<&MessageId>,
        limit: u32,
    ) -> Result<Conversation> {
        let (session, before) = (session_uuid(session)?, before.map(message_uuid).transpose()?);
        Ok(transact!(self, tx => talk::conversation(&tx, household, session, before, limit))?)
    }

    async fn mail(&self, household: HouseholdKey, id: &MessageId) -> Result<MessageWithReceipts> {
        let id = message_uuid(id)?;
        Ok(transact!(self, tx => talk::mail(&tx, household, id))?)
    }

    async fn board(&self, household: HouseholdKey, each: u32) -> Result<Vec<Lane>> {
        Ok(transact!(self, tx => work::board(&tx, household, each))?)
    }

    async fn chain(&self, household: HouseholdKey, id: &TaskId) -> Result<Vec<Task>> {
        let id = task_uuid(id)?;
        Ok(transact!(self, tx => work::chain(&tx, household, id))?)
    }

    async fn links(&self, household: HouseholdKey, limit: u32) -> Result<Vec<HouseholdConnection>> {
        Ok(transact!(self, tx => ties::links(&tx, household, limit))?)
    }

    async fn member_groups(&self, household: HouseholdKey) -> Result<Vec<Group>> {
        let ids = transact!(self, tx => ties::groups(&tx, household))?;
        groups_by_id(self, ids).await
    }

    async fn transcripts(&self, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>> {
        Ok(transact!(self, tx => ties::transcripts(&tx, household, limit))?)
    }

    async fn transcript_lines(
        &self,
        household: HouseholdKey,
        owner: &AgentName,
        key: &TranscriptKey,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<NumberedLine>> {
        Ok(transact!(self, tx => ties::transcript_lines(&tx, household, owner, key, before, limit))?)
    }

    async fn size(&self) -> Result<OfficeSize> {
        Ok(transact!(self, tx => household::size(&tx))?)
    }
}
