//! A directory mounted in the network office: the agents of either write to those of the other.
//!
//! An agent of the directory (a *resident*) gets an account in the office, and an agent of the office (a *guest* there) gets a
//! card and a mailbox in the directory. Both keep their names, so that sender, recipient and trace mean the
//! same on both sides. A message crosses whole, with the ttl and trace that it has: the mount is no hop.
//!
//! [`Mount::run`] does all of it: `membership` and `guests` keep the two lists of agents in step, `inward` carries to the directory,
//! `outward` to the office, `read_receipts` brings receipts back. What has crossed stands in the `ledger`, which is written
//! before a message is carried and after, so that a crash in between repeats a step whose repeat changes nothing;
//! `forget` removes from it what the office has removed.

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
