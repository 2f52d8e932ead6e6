//! Messages as a model sees them: inside frames that no text can imitate, so that peer text is data.
//!
//! | shape | function | frame |
//! |---|---|---|
//! | an overview of the mailbox | [`render_inbox`] | nonce |
//! | one session | [`render_conversation`] | nonce |
//! | one message that wakes a runtime | [`render_incoming`] | nonce |
//! | a group chat, for judging relevance | [`render_transcript`] | nonce |
//! | messages of live peers | [`render_peer_messages_block`] | its own tags, neutralised in bodies |
//! | the end of a background task | [`TaskNotification::render`] | everything escaped |
//!
//! A shape that only one door needs is built there with a [`Page`].
//!
//! Every shape follows the same rules, implemented in [`fence`] and [`visible`]: an attribute is escaped and on one
//! line; a body is kept byte for byte, except that tags of our own frames lose their `<`, a guessed nonce is masked,
//! and invisible characters are written out, such as `⟨U+202E⟩`.

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
pub mod size;
pub mod transcript;
pub mod visible;

pub use content::content as content_text;
pub use conversation::render_conversation;
pub use fence::Nonce;
pub use inbox::{InboxView, render_inbox};
pub use message::render_incoming;
pub use notification::{BackgroundOutcome, BackgroundUsage, TaskNotification};
pub use page::{Page, Tag};
pub use peer::render_peer_messages_block;
pub use transcript::{render_transcript, transcript_speaker};
pub use visible::is_invisible;
