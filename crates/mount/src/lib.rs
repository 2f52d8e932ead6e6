//! A directory mounted in the network office: the agents of either write to those of the other.
//!
//! An agent of the directory (a *resident*) gets an account in the office, and an agent of the office (a *guest*) gets
//! a card and a mailbox in the directory. Both keep their names, so that sender, recipient and trace mean the same on
//! both sides. A message keeps its ttl and trace: the mount is not a hop.
//!
//! [`Mount::run`] starts the loops: `membership` and `guests` keep the two lists of agents in step, `inward` carries
//! mail to the directory, `outward` to the office, and `read_receipts` writes receipts. The `ledger` is written before
//! and after a message is carried, so that a crash in between repeats an idempotent step; `forget` deletes obsolete
//! rows.

#![forbid(unsafe_code)]

mod consent;
mod context;
mod forget;
mod guests;
mod inward;
mod ledger;
mod membership;
mod mount;
mod outward;
mod read_receipts;
mod refusal;
mod reports;
mod stats;
#[cfg(test)]
mod testing;

pub use context::{HintListeners, Terms};
pub use mount::Mount;
pub use stats::{MountHealth, MountState};
