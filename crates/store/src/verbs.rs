//! The verbs of the store, one file for each group: each loads facts, asks core, and writes rows.

mod agents;
mod connections;
mod groups;
mod history;
mod household;
mod mail;
mod once;
mod receipts;
mod tasks;
mod transcripts;

pub use agents::Agents;
pub(crate) use agents::agent_named;
pub use connections::Connections;
pub(crate) use connections::{ConnectionRow, connection, consent, pair, pending};
pub use groups::Groups;
pub(crate) use groups::groups_by_id;
pub use history::Sessions;
pub use household::Households;
pub use mail::SendMany;
pub use receipts::Receipts;
pub use tasks::Tasks;
pub use transcripts::Transcripts;
pub(crate) use transcripts::numbered_line;
