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
//! Mail is durable in files that other programs read and write too ([`Layout`]). What is ours alone lies under
//! `ROOT/.amb`, and all of it can be made again from the mail.

#![forbid(unsafe_code)]

mod ack;
pub mod archive;
mod book;
mod carry;
pub mod channel;
mod claim;
mod consume;
pub mod doctor;
mod durable;
mod events;
mod failure;
mod find;
mod fold;
mod history;
mod inbox;
mod layout;
mod lease;
mod lock;
mod log;
mod mailbox;
mod message_file;
mod mount;
mod notice;
mod office;
mod once;
mod open;
mod paths;
mod people;
mod post;
mod registry;
mod scan;
mod send;
mod step;
mod syncer;
mod tasks;
pub mod transcript;
mod unfinished;
mod watch;

pub use carry::Fate;
pub use channel::{Channel, ChannelConfig, Delivery, InboundMessage};
pub use consume::HeldMail;
pub use layout::Layout;
pub use mount::{Home, MountLock};
pub use office::{ClaimBy, DirMailbox, DirOffice, DirOptions};
#[cfg(feature = "test-support")]
pub use step::{DELAYS, PAUSE_AT, STOP_AT};
