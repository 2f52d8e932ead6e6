//! Storage usage and quotas.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Neg};

use amb_core::send::Storage;
use amb_core::{Quotas, Usage};
use parking_lot::Mutex;

use crate::engine::from_row;

/// An amount of stored mail, or a change of it; negative for removed mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    pub(crate) messages: i64,
    pub(crate) bytes: i64,
}

impl Stored {
    /// One message with so many recipients; one without any counts as one.
    pub(crate) fn message(copies: usize, bytes: usize) -> Self {
        Self {
            messages: i64::try_from(copies.max(1)).unwrap_or(i64::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        }
    }

    pub(crate) fn usage(self) -> Usage {
        let whole = |count: i64| u64::try_from(count).unwrap_or(0);
        Usage { messages: whole(self.messages), bytes: whole(self.bytes) }
    }
}

impl AddAssign for Stored {
    fn add_assign(&mut self, other: Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Neg for Stored {
    type Output = Self;

    fn neg(self) -> Self {
        Self { messages: -self.messages, bytes: -self.bytes }
    }
}

from_row!(Stored: messages bytes);

/// Changes of agents' usage, in the order of agents.
pub(crate) type Charges = BTreeMap<i64, Stored>;

/// The quotas, and the usage of the whole office.
#[derive(Debug)]
pub struct Account(Mutex<(Quotas, Stored)>);

impl Default for Account {
    /// Without quotas: the server sets them.
    fn default() -> Self {
        Self(Mutex::new((Quotas::NONE, Stored::default())))
    }
}

impl Account {
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        self.0.lock().0 = quotas;
    }

    pub(crate) fn quotas(&self) -> Quotas {
        self.0.lock().0
    }

    /// Returns the usage of the whole office, as of the last count.
    pub(crate) fn office(&self) -> Stored {
        self.0.lock().1
    }

    pub(crate) fn set_office(&self, stored: Stored) {
        self.0.lock().1 = stored;
    }

    pub(crate) fn add_to_office(&self, more: Stored) {
        self.0.lock().1 += more;
    }

    /// Returns the facts that decide whether a sender may store `more`. `since` was added to the office since its last
    /// count.
    pub(crate) fn storage(&self, sender: Stored, since: Stored, more: Stored) -> Storage {
        let (quotas, mut office) = *self.0.lock();
        office += since;
        Storage { quotas, sender: sender.usage(), office: office.usage(), more: more.usage() }
    }
}
