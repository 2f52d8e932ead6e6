//! The office in a directory: mailboxes, registry and transcripts in plain files, with nothing to start.
//!
//! ```no_run
//! use amb_core::{Draft, Mailbox, card::Card};
//! use amb_dir::{DirOffice, DirOptions};
//! # async fn example() -> Result<(), amb_core::OfficeError> {
//! let office = DirOffice::open("mailboxes".as_ref(), DirOptions::default())?;
//! let (ann, bob) = (office.mailbox("ann".parse()?), office.mailbox("bob".parse()?));
//! ann.register(Card::default()).await?;
//! bob.register(Card::default()).await?;
//! ann.send(Draft::text(bob.me().clone(), "Plan", "hello")).await?;
//! assert_eq!(bob.inbox(true).await?.unread(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Mail is durable in files that other programs read and write too ([`Layout`]). The office's own files are under
//! `ROOT/.amb`, and can be rebuilt from the mail.

#![forbid(unsafe_code)]

pub mod doctor;
mod files;
mod journal;
mod log;
mod mailbox;
mod mount;
mod office;
mod registry;
pub mod transcript;
mod verbs;

pub use files::layout::Layout;
#[cfg(feature = "test-support")]
pub use files::step::{DELAYS, PAUSE_AT, STOP_AT};
pub use mount::{Home, MountLock};
pub use office::{ClaimBy, DirMailbox, DirOffice, DirOptions};
pub use verbs::archive;
pub use verbs::carry::CarryOutcome;
pub use verbs::consume::HeldMail;
