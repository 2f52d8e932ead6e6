//! The verbs of the store, one file for each group: each loads facts, asks core, and writes rows.

mod agents;
mod connections;
mod dashboard;
mod directory;
mod groups;
mod history;
mod household;
mod inbox;
mod log;
mod mail;
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

pub use agents::Agents;
pub(crate) use agents::{agent_named, by_key};
pub use connections::Connections;
pub(crate) use connections::{consent, pair, pending};
pub use dashboard::{
    Browser, Conversation, ConversationLine, ConversationQuery, Dashboard, HouseholdConnection, HouseholdKey, Lane,
    MAX_COUNTED, MAX_MEMBERS, Member, MemberDetails, Needs, OfficeSize, SaidLine, SignIn, TranscriptLine, Viewer,
    WaitingRequest,
};
pub use directory::Directory;
pub(crate) use directory::stored_by;
pub use groups::Groups;
pub(crate) use groups::{audience, find as group_named, joined};
pub use history::Sessions;
pub use household::Households;
pub(crate) use inbox::{all_sessions, page_of_sessions};
pub use log::{HouseholdCursor, HouseholdPage, Logs};
pub(crate) use log::{has_entry_after, head as log_head};
pub use mail::Mail;
pub use messages::Messages;
pub(crate) use once::{answer_under, keep_answer};
pub use prune::Pruning;
pub use receipts::Receipts;
pub use search::Search;
pub(crate) use send::{NewTask, Outcome, ParentRow, Peer, SendTx, SessionRow, TASK_OF_MESSAGE, To, decide, send};
pub use stepping_in::SteppingIn;
pub use tasks::Tasks;
pub use transcripts::Transcripts;
pub use wake::{NewWakeUps, WakeReports};
