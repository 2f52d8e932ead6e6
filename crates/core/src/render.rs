//! Messages as a model sees them: fenced, so that no text can imitate the frame, another sender or the system.
//!
//! | shape | function | frame |
//! |---|---|---|
//! | an overview of the mailbox | [`render_inbox`] | nonce |
//! | one session | [`render_conversation`] | nonce |
//! | one message that wakes a runtime | [`render_incoming`] | nonce |
//! | a connection request that wakes one | [`render_request`] | nonce |
//! | a list of agents | [`render_agents`] | nonce |
//! | the hits of a search | [`render_search`] | nonce |
//! | a group chat, for judging relevance | [`render_transcript`] | nonce |
//! | messages of live peers | [`render_peer_messages_block`] | its own tags, neutralised in bodies |
//! | the end of a background task | [`TaskNotification::render`] | everything escaped |
//!
//! A shape that only one door shows is built there with a [`Page`].
//!
//! Every shape follows the same rules, implemented in [`fence`] and [`visible`]: an attribute is one line and escaped; a body is
//! left byte for byte, except that tags of our own frames lose their `<`, a guessed nonce is masked, and invisible characters are
//! written out, such as `⟨U+202E⟩`.

pub mod agents;
mod content;
pub mod conversation;
pub mod fence;
#[cfg(test)]
mod hostile;
pub mod inbox;
pub mod message;
pub mod notification;
pub mod page;
pub mod peer;
pub mod request;
pub mod search;
pub mod size;
pub mod transcript;
pub mod visible;

pub use agents::render_agents;
pub use content::content as content_text;
pub use conversation::{render_conversation, render_cut_conversation};
pub use fence::Nonce;
pub use inbox::{InboxView, render_inbox};
pub use message::{Incoming, render_incoming};
pub use notification::{BackgroundOutcome, BackgroundUsage, TaskNotification};
pub use page::{Page, Tag};
pub use peer::{PeerMessage, render_peer_messages, render_peer_messages_block};
pub use request::{Request, render_request};
pub use search::render_search;
pub use transcript::{render_transcript, transcript_speaker};
pub use visible::is_invisible;
