//! How much mail is stored, and the limits on that.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Neg};

use amb_core::send::Storage;
use amb_core::{Quotas, Usage};
use parking_lot::Mutex;

/// Stored mail as the databases count it; what was removed is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    pub(crate) messages: i64,
    pub(crate) bytes: i64,
}

impl Stored {
    /// One message to so many agents; one that goes to nobody counts too.
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

/// Changes of what agents have stored, each agent once, in the order of agents.
pub(crate) type Charges = BTreeMap<i64, Stored>;

/// The limits, and what the whole office stores.
#[derive(Debug)]
pub struct Account(Mutex<(Quotas, Stored)>);

impl Default for Account {
    /// Without limits: whoever runs the office sets them.
    fn default() -> Self {
        Self(Mutex::new((Quotas::NONE, Stored::default())))
    }
}

impl Account {
    fn with<T>(&self, look: impl FnOnce(&mut (Quotas, Stored)) -> T) -> T {
        look(&mut self.0.lock())
    }

    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        self.with(|account| account.0 = quotas);
    }

    pub(crate) fn quotas(&self) -> Quotas {
        self.with(|account| account.0)
    }

    /// What the whole office stores, as far as it is known.
    pub(crate) fn office(&self) -> Stored {
        self.with(|account| account.1)
    }

    pub(crate) fn set_office(&self, stored: Stored) {
        self.with(|account| account.1 = stored);
    }

    pub(crate) fn add_to_office(&self, more: Stored) {
        self.with(|account| account.1 += more);
    }

    /// What decides whether a sender may add `more`. `since` is what was added to the known amount of the office.
    pub(crate) fn storage(&self, sender: Stored, since: Stored, more: Stored) -> Storage {
        let (quotas, mut office) = self.with(|account| *account);
        office += since;
        Storage { quotas, sender: sender.usage(), office: office.usage(), more: more.usage() }
    }
}
