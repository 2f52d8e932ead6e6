//! The verbs of the store, one file for each group. Each verb loads facts, calls core to decide, and writes rows.

mod agents;
mod connections;
mod dashboard;
mod directory;
mod groups;
mod history;
mod household;
mod inbox;
mod log;
mod messages;
mod once;
mod prune;
mod receipts;
mod search;
mod send;
mod stepping_in;
mod tasks;
mod transcripts;
mod wake;

pub use agents::AgentVerbs;
pub(crate) use agents::{agent_named, by_key};
pub use connections::ConnectionVerbs;
pub(crate) use connections::{consent, pair, pending};
pub use dashboard::{
    Browser, Conversation, ConversationLine, ConversationQuery, DashboardVerbs, HouseholdConnection, HouseholdKey,
    Lane, MAX_COUNTED, MAX_MEMBERS, Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer,
    WaitingRequest,
};
pub use directory::DirectoryVerbs;
pub(crate) use directory::stored_by;
pub use groups::GroupVerbs;
pub(crate) use groups::{audience, find as group_named, joined};
pub use history::HistoryVerbs;
pub use household::HouseholdVerbs;
pub(crate) use inbox::{all_sessions, page_of_sessions};
pub use log::{HouseholdCursor, HouseholdPage, LogVerbs};
pub(crate) use log::{has_entry_after, head as log_head};
pub use messages::MessageVerbs;
pub(crate) use once::{answer_under, keep_answer};
pub use prune::PruneVerbs;
pub use receipts::ReceiptVerbs;
pub use search::SearchVerbs;
pub use send::SendVerbs;
pub(crate) use send::{
    NewTask, Outcome, ParentRow, RecipientRow, SendTx, SessionRow, TASK_OF_MESSAGE, To, decide, send, session_columns,
};
pub use stepping_in::SteppingInVerbs;
pub use tasks::TaskVerbs;
pub use transcripts::TranscriptVerbs;
pub use wake::{NewWakeUps, WakeVerbs};
