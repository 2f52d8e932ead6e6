//! The stories by name; each file holds those of one subject.

pub use super::events::*;
pub use super::mail::*;
pub use super::tasks::*;
