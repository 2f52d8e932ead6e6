//! Limits on what an agent, and all agents together, may store in an office.

use crate::limits::{DEFAULT_AGENT_BYTES, DEFAULT_AGENT_MESSAGES};
use crate::{Code, OfficeError};

/// An amount of mail, stored or about to be added.
///
/// A message is charged to its sender once for each recipient, and a transcript line to its author. Bytes are those of
/// text, parts, metadata and callback (of a line: all of it) as stored; the content of a group's message is stored
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Messages and lines.
    pub messages: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

/// Maximum amounts; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Messages of one agent.
    pub agent_messages: Option<u64>,
    /// Bytes of one agent.
    pub agent_bytes: Option<u64>,
    /// Messages of all agents.
    pub office_messages: Option<u64>,
    /// Bytes of all agents.
    pub office_bytes: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            agent_messages: Some(DEFAULT_AGENT_MESSAGES),
            agent_bytes: Some(DEFAULT_AGENT_BYTES),
            office_messages: None,
            office_bytes: None,
        }
    }
}

impl Quotas {
    /// No limits.
    pub const NONE: Self = Self { agent_messages: None, agent_bytes: None, office_messages: None, office_bytes: None };

    /// Checks whether a sender may add `more` to what it and the whole office have stored.
    ///
    /// # Errors
    /// `over_quota`, naming the first limit that would be exceeded.
    pub fn check(&self, sender: Usage, office: Usage, more: Usage) -> Result<(), OfficeError> {
        let exceeds = |used: u64, more: u64, most: Option<u64>| most.filter(|most| used.saturating_add(more) > *most);
        if let Some(most) = exceeds(sender.messages, more.messages, self.agent_messages) {
            let detail = format!(
                "you have {} messages stored here, and an agent may have {most}; {}",
                sender.messages,
                ask("--agent-messages")
            );
            return Err(OfficeError::new(Code::OverQuota, detail));
        }
        if let Some(most) = exceeds(sender.bytes, more.bytes, self.agent_bytes) {
            let detail = format!(
                "you have {} bytes of mail stored here, this would add {}, and an agent may have {most}; {}",
                sender.bytes,
                more.bytes,
                ask("--agent-bytes")
            );
            return Err(OfficeError::new(Code::OverQuota, detail));
        }
        if let Some(most) = exceeds(office.messages, more.messages, self.office_messages) {
            let detail = format!("the office stores as many messages as it may, {most}; {}", ask("--office-messages"));
            return Err(OfficeError::new(Code::OverQuota, detail));
        }
        if let Some(most) = exceeds(office.bytes, more.bytes, self.office_bytes) {
            let detail =
                format!("the office stores as many bytes of mail as it may, {most}; {}", ask("--office-bytes"));
            return Err(OfficeError::new(Code::OverQuota, detail));
        }
        Ok(())
    }
}

fn ask(flag: &str) -> String {
    format!("ask its operator to remove read mail (--keep-read-mail) or to raise {flag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_limit_that_would_be_exceeded() {
        let used = Usage { messages: 9, bytes: 90 };
        let more = Usage { messages: 1, bytes: 10 };
        let limits = |agent_messages, agent_bytes, office_messages, office_bytes| Quotas {
            agent_messages: Some(agent_messages),
            agent_bytes: Some(agent_bytes),
            office_messages: Some(office_messages),
            office_bytes: Some(office_bytes),
        };
        assert!(limits(10, 100, 10, 100).check(used, used, more).is_ok(), "up to the limit");
        for (quotas, flag, most) in [
            (limits(9, 100, 10, 100), "--agent-messages", "may have 9;"),
            (limits(10, 99, 10, 100), "--agent-bytes", "may have 99;"),
            (limits(10, 100, 9, 100), "--office-messages", "may, 9;"),
            (limits(10, 100, 10, 99), "--office-bytes", "may, 99;"),
        ] {
            let error = quotas.check(used, used, more).unwrap_err();
            assert_eq!(error.code(), Code::OverQuota);
            assert!(error.detail().contains(flag) && error.detail().contains(most), "{error}");
        }
        let much = Usage { messages: u64::MAX, bytes: u64::MAX };
        assert!(Quotas::NONE.check(much, much, much).is_ok());
        assert!(Quotas::default().check(much, much, more).is_err(), "no overflow");
    }
}
