//! The `channels.mailbox` section of a nanobot `config.json`, in camelCase or snake_case.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use super::WireError;
use super::json::{self, wrong_type};
use crate::Object;
use crate::card::{AllowFrom, Card};
use crate::limits::DEFAULT_POLL_INTERVAL;
use crate::name::AgentName;

/// nanobot's default directory of mailboxes. The caller replaces `~` by the home directory.
pub const DEFAULT_ROOT: &str = "~/.nanobot/mailboxes";

/// The accepted poll intervals in seconds.
const POLL_SECONDS: RangeInclusive<f64> = 0.001..=86_400.0;

/// The settings of an agent's mailbox.
#[derive(Debug, Clone, PartialEq)]
pub struct MailboxConfig {
    /// Whether the channel runs at all.
    pub enabled: bool,
    /// The agent; missing only in a section that is not enabled.
    pub agent: Option<AgentName>,
    /// The agent's card.
    pub card: Card,
    /// How often the mailbox is polled.
    pub poll_interval: Duration,
    /// Where the mailboxes are, as written: a leading `~` is still there.
    pub mailboxes_root: String,
}

impl Default for MailboxConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            agent: None,
            card: Card::default(),
            poll_interval: DEFAULT_POLL_INTERVAL,
            mailboxes_root: DEFAULT_ROOT.into(),
        }
    }
}

impl MailboxConfig {
    /// Reads the section from a whole `config.json`; `None` if it has none.
    pub fn from_config(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut config = json::parse(bytes)?;
        let Some(channels) = json::take(&mut config, "channels") else { return Ok(None) };
        let section = json::take(&mut json::object(channels, "channels")?, "mailbox");
        section.map(|section| Self::from_fields(json::object(section, "channels.mailbox")?)).transpose()
    }

    fn from_fields(fields: Object) -> Result<Self, WireError> {
        let mut config = Self::default();
        // In reverse order of the names: of two spellings of one setting camelCase wins, as in the Python channel.
        for (key, value) in fields.into_iter().rev() {
            // Null means that an optional setting is not set.
            if value.is_null() {
                continue;
            }
            match &*snake(&key) {
                "enabled" => config.enabled = json::boolean(&value, "enabled")?,
                "agent_id" => {
                    let text = json::string(value, "agentId")?;
                    config.agent = match text.as_str() {
                        "" => None,
                        text => {
                            Some(AgentName::parse(text).map_err(|bad| WireError::field("agentId", bad.to_string()))?)
                        }
                    };
                }
                "description" => config.card.description = json::string(value, "description")?,
                "capabilities" => config.card.capabilities = texts(value, "capabilities")?,
                "allow_from" => config.card.allow_from = AllowFrom(texts(value, "allowFrom")?),
                "max_concurrent_tasks" => {
                    config.card.max_concurrent_tasks = json::clamped(&value, "maxConcurrentTasks", u32::MAX)?;
                }
                "poll_interval" => config.poll_interval = seconds(&value)?,
                "mailboxes_root" => {
                    let root = json::string(value, "mailboxesRoot")?;
                    if root.trim().is_empty() {
                        return Err(WireError::field("mailboxesRoot", "is empty; leave it out for the default"));
                    }
                    config.mailboxes_root = root;
                }
                // Other settings of the channel are ignored.
                _ => {}
            }
        }
        if config.enabled && config.agent.is_none() {
            return Err(WireError::field("agentId", "is empty; give this agent a name of its own, such as coder"));
        }
        Ok(config)
    }
}

/// `agentId` as `agent_id`.
fn snake(key: &str) -> Cow<'_, str> {
    if !key.contains(|c: char| c.is_ascii_uppercase()) {
        return Cow::Borrowed(key);
    }
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    Cow::Owned(snake)
}

fn texts(value: Value, field: &'static str) -> Result<Vec<String>, WireError> {
    json::array(value, field)?.into_iter().map(|item| json::string(item, field)).collect()
}

fn seconds(value: &Value) -> Result<Duration, WireError> {
    match value.as_f64() {
        Some(seconds) if POLL_SECONDS.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Some(_) => Err(WireError::field("pollInterval", "should be 0.001 to 86400 seconds")),
        None => Err(wrong_type(value, "pollInterval", "a number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{arbitrary_bytes, mutated, retyped};
    use proptest::prelude::*;
    use serde_json::json;

    const SEED: &str = r#"{
  "channels": {
    "feishu": {"enabled": true, "appId": "...", "appSecret": "..."},
    "mailbox": {
      "enabled": true,
      "agentId": "coder",
      "description": "负责代码编写和修改的 agent",
      "capabilities": ["code_write", "test_run", "review"],
      "allowFrom": ["researcher"],
      "maxConcurrentTasks": 3,
      "pollInterval": 5,
      "mailboxesRoot": "~/.nanobot/mailboxes"
    }
  }
}"#;

    fn section(value: Value) -> Result<MailboxConfig, WireError> {
        let config = json!({"channels": {"mailbox": value}});
        MailboxConfig::from_config(config.to_string().as_bytes()).map(Option::unwrap)
    }

    #[test]
    fn the_section_of_the_description_is_read() {
        let config = MailboxConfig::from_config(SEED.as_bytes()).unwrap().unwrap();
        assert_eq!(config.agent.as_ref().unwrap().as_str(), "coder");
        assert_eq!(config.card.allow_from, AllowFrom(vec!["researcher".into()]));
        assert_eq!((config.enabled, config.poll_interval), (true, Duration::from_secs(5)));
    }

    #[test]
    fn an_empty_section_has_the_defaults_of_the_description() {
        let config = section(json!({})).unwrap();
        assert_eq!(config, MailboxConfig::default());
        assert_eq!((config.enabled, config.agent, config.card), (false, None, Card::default()));
        assert_eq!((config.poll_interval.as_secs(), config.mailboxes_root.as_str()), (5, "~/.nanobot/mailboxes"));
        for none in ["{}", r#"{"channels":null}"#, r#"{"channels":{}}"#, r#"{"channels":{"mailbox":null}}"#] {
            assert_eq!(MailboxConfig::from_config(none.as_bytes()), Ok(None));
        }
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let camel = section(json!({"enabled": true, "agentId": "a", "allowFrom": [], "maxConcurrentTasks": 9,
            "pollInterval": 0.5, "mailboxesRoot": "/m", "unknown": {}}));
        let snake = section(json!({"enabled": true, "agent_id": "a", "allow_from": [], "max_concurrent_tasks": 9,
            "poll_interval": 0.5, "mailboxes_root": "/m", "description": null}));
        assert_eq!(camel, snake);
        assert_eq!(camel.unwrap().poll_interval, Duration::from_millis(500));
        let both = section(json!({"agent_id": "snake", "agentId": "camel"})).unwrap();
        assert_eq!(both.agent.unwrap().as_str(), "camel");
    }

    #[test]
    fn an_enabled_section_needs_a_valid_agent() {
        for bad in [
            json!({"enabled": true}),
            json!({"enabled": true, "agentId": ""}),
            json!({"agentId": "../x"}),
            json!({"agent_id": "_registry"}),
            json!({"agentId": 7}),
        ] {
            assert!(section(bad.clone()).unwrap_err().to_string().contains("agentId"), "{bad}");
        }
        assert!(section(json!({"enabled": false, "agentId": ""})).is_ok());
    }

    #[test]
    fn an_error_names_the_setting() {
        for (setting, bad) in [
            ("enabled", json!("yes")),
            ("allowFrom", json!("*")),
            ("capabilities", json!([1])),
            ("pollInterval", json!(0)),
            ("pollInterval", json!(-1)),
            ("pollInterval", json!(1e300)),
            // Positive, but below the minimum.
            ("pollInterval", json!(1e-10)),
            ("pollInterval", json!(0.0009)),
            ("pollInterval", json!("5")),
            ("mailboxesRoot", json!("")),
            ("maxConcurrentTasks", json!("3")),
        ] {
            let said = section(json!({ setting: bad })).unwrap_err().to_string();
            assert!(said.contains(setting), "{said}");
        }
        assert!(MailboxConfig::from_config(br#"{"channels":{"mailbox":[]}}"#).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in retyped(SEED)) {
            for bytes in [bytes, a, b] {
                let _ = MailboxConfig::from_config(&bytes);
            }
        }
    }
}
