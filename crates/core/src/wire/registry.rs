//! nanobot's `_registry.json`: an object of cards by agent id, shared by all agents of one directory.
//!
//! Each agent writes only its own entry. All others, including those that do not parse, are kept as they are.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::stamp::Stamp;
use super::{WireError, json, pretty};
use crate::Object;
use crate::card::{AllowFrom, Card, Presence, Status};
use crate::doc::AgentEntry;
use crate::id::TaskId;
use crate::limits::DEFAULT_MAX_CONCURRENT_TASKS;
use crate::name::AgentName;

/// A heartbeat further ahead of our clock is ignored: a dead agent would seem alive until that time.
const MAX_AHEAD: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);

/// The whole file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registry {
    entries: Object,
}

/// One agent's entry.
#[derive(Debug, Clone, PartialEq)]
pub struct RegistryEntry {
    /// The key in the registry; `agent_id` is ignored.
    pub name: AgentName,
    /// Its card.
    pub card: Card,
    /// Its last reported status; [`RegistryEntry::into_agent`] derives whether it is still alive.
    pub status: Status,
    /// Its current tasks.
    pub current_tasks: Vec<TaskId>,
    /// When it first registered.
    pub registered_at: Option<Stamp>,
    /// Its last heartbeat.
    pub last_heartbeat: Option<Stamp>,
}

impl Registry {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self { entries: json::parse(bytes)? })
    }

    /// Writes the file, indented by two spaces as nanobot does.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        pretty(&self.entries, 512 * (self.entries.len() + 1))
    }

    /// All entries. One that does not parse comes with its key and the error.
    pub fn entries(&self) -> impl Iterator<Item = Result<RegistryEntry, (&str, WireError)>> {
        self.entries.iter().map(|(key, value)| RegistryEntry::parse(key, value).map_err(|error| (key.as_str(), error)))
    }

    /// The entry of one agent, if there is one.
    pub fn get(&self, name: &AgentName) -> Result<Option<RegistryEntry>, WireError> {
        self.entries.get(name.as_str()).map(|value| RegistryEntry::parse(name.as_str(), value)).transpose()
    }

    /// Whether there is an entry of this name, valid or not.
    pub fn contains(&self, name: &AgentName) -> bool {
        self.entries.contains_key(name.as_str())
    }

    /// The number of entries, valid or not.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes one agent's entry. Its unknown fields are kept.
    pub fn put(&mut self, entry: &RegistryEntry) {
        let mut fields = match self.entries.remove(entry.name.as_str()) {
            Some(Value::Object(fields)) => fields,
            _ => Object::new(),
        };
        let mut set = |key: &str, value: Value| drop(fields.insert(key.to_owned(), value));
        set("agent_id", entry.name.as_str().into());
        set("description", entry.card.description.as_str().into());
        set("capabilities", json!(entry.card.capabilities));
        set("allow_from", json!(entry.card.allow_from));
        set("max_concurrent_tasks", entry.card.max_concurrent_tasks.into());
        set("status", entry.status.as_str().into());
        set("current_tasks", json!(entry.current_tasks));
        for (key, stamp) in [("registered_at", &entry.registered_at), ("last_heartbeat", &entry.last_heartbeat)] {
            if let Some(stamp) = stamp {
                set(key, json!(stamp));
            }
        }
        self.entries.insert(entry.name.as_str().to_owned(), Value::Object(fields));
    }

    /// All entries as they are, by name.
    pub fn raw(&self) -> &Object {
        &self.entries
    }

    /// Restores a lost entry. An existing one is kept.
    pub fn restore(&mut self, key: &str, entry: &Value) {
        if !self.entries.contains_key(key) {
            self.entries.insert(key.to_owned(), entry.clone());
        }
    }

    /// Merges the changes of another writer: both this registry and `theirs` were changed from `base`. Of an entry that
    /// both have changed, the one with the later heartbeat wins. Nothing is removed: a writer without a lock may lack
    /// an entry because it has not read it yet.
    pub fn merge(&mut self, base: &Registry, theirs: &Registry) {
        for (key, value) in &theirs.entries {
            let (old, mine) = (base.entries.get(key), self.entries.get(key));
            if old == Some(value) || mine == Some(value) {
                continue;
            }
            if mine == old || RegistryEntry::last_seen(key, Some(value)) > RegistryEntry::last_seen(key, mine) {
                self.entries.insert(key.clone(), value.clone());
            }
        }
    }
}

impl RegistryEntry {
    /// Parses an entry. Missing fields have nanobot's defaults; a field of the wrong type is an error, so that a broken
    /// `allow_from` is not read as "everybody".
    pub fn parse(key: &str, value: &Value) -> Result<Self, WireError> {
        let name = AgentName::parse(key)
            .map_err(|bad| WireError::field(key.to_owned(), format!("is not an agent's name: {bad}")))?;
        let Value::Object(fields) = value else {
            return Err(WireError::field(key.to_owned(), "should be an object"));
        };
        let get = |field: &str| fields.get(field).filter(|value| !value.is_null());
        let wrong =
            |field: &str, wanted: &str| WireError::field(format!("{key}.{field}"), format!("should be {wanted}"));
        let texts = |field: &'static str| match get(field) {
            None => Ok(None),
            Some(Value::Array(items)) => {
                let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
                texts.map(Some).ok_or_else(|| wrong(field, "an array of strings"))
            }
            Some(_) => Err(wrong(field, "an array of strings")),
        };
        let stamp = |field: &'static str| {
            get(field).map(|value| Stamp::from_value(value).ok_or_else(|| wrong(field, "a timestamp"))).transpose()
        };
        let card = Card {
            description: match get("description") {
                None => String::new(),
                Some(value) => value.as_str().ok_or_else(|| wrong("description", "a string"))?.to_owned(),
            },
            capabilities: texts("capabilities")?.unwrap_or_default(),
            allow_from: texts("allow_from")?.map(AllowFrom).unwrap_or_default(),
            max_concurrent_tasks: match get("max_concurrent_tasks") {
                None => DEFAULT_MAX_CONCURRENT_TASKS,
                Some(value) => {
                    let number = value.as_f64().ok_or_else(|| wrong("max_concurrent_tasks", "a number"))?;
                    number.clamp(0.0, f64::from(u32::MAX)) as u32
                }
            },
        };
        Ok(Self {
            name,
            card,
            // An unknown word does not mean offline; the heartbeat tells whether it is alive.
            status: get("status").and_then(|value| value.as_str()?.parse().ok()).unwrap_or(Status::Idle),
            current_tasks: match get("current_tasks") {
                None => Vec::new(),
                Some(Value::Array(items)) => items.iter().filter_map(|id| TaskId::parse(id.as_str()?).ok()).collect(),
                Some(_) => return Err(wrong("current_tasks", "an array of ids")),
            },
            registered_at: stamp("registered_at")?,
            last_heartbeat: stamp("last_heartbeat")?,
        })
    }

    /// When the agent of an entry last registered or sent a heartbeat, if the entry parses.
    fn last_seen(key: &str, value: Option<&Value>) -> Option<Timestamp> {
        let entry = Self::parse(key, value?).ok()?;
        entry.registered_at.into_iter().chain(entry.last_heartbeat).map(|stamp| stamp.at()).max()
    }

    /// The agent as the office reports it at `now`.
    pub fn into_agent(self, now: Timestamp, timeout: Duration) -> AgentEntry {
        let ahead = |at: &Timestamp| at.duration_since(now) > MAX_AHEAD;
        let last_seen = self.last_heartbeat.map(|stamp| stamp.at()).filter(|at| !ahead(at));
        AgentEntry {
            name: self.name,
            card: self.card,
            presence: Presence::at(now, self.status, last_seen, self.current_tasks, timeout),
            registered_at: self.registered_at.map(|stamp| stamp.at()),
            household: false,
            person: false,
            paused: false,
        }
    }
}

impl From<AgentEntry> for RegistryEntry {
    fn from(agent: AgentEntry) -> Self {
        Self {
            name: agent.name,
            card: agent.card,
            status: agent.presence.status,
            current_tasks: agent.presence.current_tasks,
            registered_at: agent.registered_at.map(Stamp::now),
            last_heartbeat: agent.presence.last_seen.map(Stamp::now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{arbitrary_bytes, mutated};
    use proptest::prelude::*;

    const SEED: &str = r#"{
  "researcher": {
    "agent_id": "researcher",
    "description": "负责信息检索和分析的 agent",
    "capabilities": ["web_search", "code_analysis", "summarization"],
    "status": "idle",
    "allow_from": ["coder", "writer"],
    "max_concurrent_tasks": 3,
    "current_tasks": ["msg_1745659200_coder"],
    "registered_at": "2026-04-26T10:00:00Z",
    "last_heartbeat": "2026-04-26T10:05:00Z"
  },
  "coder": {
    "agent_id": "coder",
    "description": "负责代码编写和修改的 agent",
    "capabilities": ["code_write", "test_run", "review"],
    "status": "idle",
    "allow_from": ["*"],
    "max_concurrent_tasks": 3,
    "current_tasks": [],
    "registered_at": "2026-04-26T10:00:30Z",
    "last_heartbeat": "2026-04-26T10:05:30Z"
  }
}"#;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn value(registry: &Registry) -> Value {
        serde_json::from_slice(&registry.write().unwrap()).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// An idle agent with this heartbeat.
    fn seen_at(second: i64) -> RegistryEntry {
        RegistryEntry {
            name: name("me"),
            card: Card::default(),
            status: Status::Idle,
            current_tasks: Vec::new(),
            registered_at: None,
            last_heartbeat: Some(Stamp::now(at(second))),
        }
    }

    #[test]
    fn the_registry_of_the_description_round_trips() {
        let mut registry = Registry::parse(SEED.as_bytes()).unwrap();
        let seed: Value = serde_json::from_str(SEED).unwrap();
        assert_eq!(value(&registry), seed);

        let entry = registry.get(&name("researcher")).unwrap().unwrap();
        assert_eq!(entry.card.allow_from, AllowFrom(vec!["coder".into(), "writer".into()]));
        assert_eq!(entry.current_tasks, [TaskId::parse("msg_1745659200_coder").unwrap()]);
        registry.put(&entry);
        assert_eq!(value(&registry), seed, "an entry is written as it was read");
        assert!(String::from_utf8(registry.write().unwrap()).unwrap().starts_with("{\n  \"coder\": {\n    \""));
    }

    #[test]
    fn integer_heartbeats_missing_ids_and_unknown_fields_are_accepted_and_kept() {
        let text = r#"{"b":{"last_heartbeat":1777197600,"status":"napping","skills":[1,{"x":null}]},
                       "c":{"last_heartbeat":1777197600123,"description":null}}"#;
        let mut registry = Registry::parse(text.as_bytes()).unwrap();
        let entry = registry.get(&name("b")).unwrap().unwrap();
        assert_eq!(entry.last_heartbeat.as_ref().unwrap().at(), at(1_777_197_600));
        assert_eq!((entry.status, &entry.card), (Status::Idle, &Card::default()));
        registry.put(&entry);
        let written = value(&registry);
        assert_eq!(written["b"]["last_heartbeat"], json!(1_777_197_600), "the original form is kept");
        assert_eq!(written["b"]["skills"], json!([1, {"x": null}]));
        assert_eq!(written["b"]["agent_id"], "b");
        assert_eq!(written["c"], json!({"last_heartbeat": 1_777_197_600_123_u64, "description": null}));
    }

    #[test]
    fn entries_that_do_not_parse_are_kept() {
        let text = r#"{"ok":{}, "../x":{}, "bad":7, "worse":{"allow_from":"coder"}, "old":{"last_heartbeat":"soon"}}"#;
        let mut registry = Registry::parse(text.as_bytes()).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = registry.entries().partition(Result::is_ok);
        assert_eq!((good.len(), bad.len()), (1, 4));
        assert!(registry.get(&name("worse")).unwrap_err().to_string().contains("worse.allow_from"));

        let before = value(&registry);
        registry.put(&seen_at(2));
        let mut after = value(&registry);
        assert_eq!(after["me"]["last_heartbeat"], "1970-01-01T00:00:02Z");
        after.as_object_mut().unwrap().remove("me");
        assert_eq!(after, before);
    }

    #[test]
    fn changes_of_another_writer_are_merged_and_the_later_heartbeat_wins() {
        let registry = |value: Value| Registry::parse(value.to_string().as_bytes()).unwrap();
        let seen = |second: u64| json!({ "last_heartbeat": second });
        let base = registry(json!({"a": seen(10), "b": seen(10), "c": seen(10), "d": seen(10), "unread": seen(10)}));
        let theirs = registry(json!({"a": seen(20), "b": seen(10), "c": seen(20), "d": seen(30), "new": {"x": 1}}));
        let mut mine = base.clone();
        for (key, second) in [("b", 15), ("c", 30), ("d", 20), ("ours", 10)] {
            mine.entries.insert(key.into(), seen(second));
        }
        mine.merge(&base, &theirs);
        let mut expected = json!({"a": seen(20), "b": seen(15), "c": seen(30), "d": seen(30), "new": {"x": 1}});
        expected["ours"] = seen(10);
        expected["unread"] = seen(10);
        assert_eq!(value(&mine), expected);
        mine.restore("gone", &seen(10));
        mine.restore("a", &seen(1));
        assert_eq!((&value(&mine)["gone"], &value(&mine)["a"]), (&seen(10), &seen(20)));
    }

    #[test]
    fn an_agent_is_offline_when_its_heartbeat_is_old() {
        let entry = seen_at(100);
        let timeout = Duration::from_secs(30);
        assert_eq!(entry.clone().into_agent(at(130), timeout).presence.status, Status::Idle);
        assert_eq!(entry.into_agent(at(131), timeout).presence.status, Status::Offline);
    }

    #[test]
    fn other_bytes_are_an_error() {
        for bytes in [&b""[..], b"[]", b"null", b"{\"a\":", b"\xff"] {
            assert!(Registry::parse(bytes).is_err());
        }
    }

    fn entries() -> impl Strategy<Value = RegistryEntry> {
        (
            "[a-z][a-z0-9._-]{0,12}",
            ".{0,20}",
            prop::collection::vec(".{1,8}", 0..4),
            prop::collection::vec("[a-z*]{1,8}", 0..4),
            any::<u32>(),
            prop::sample::select(vec![Status::Idle, Status::Busy, Status::Offline]),
            prop::collection::vec("[a-z0-9_]{1,12}", 0..3),
            prop::option::of(0_i64..4_000_000_000),
        )
            .prop_map(|(who, description, capabilities, allow, max_concurrent_tasks, status, tasks, seen)| {
                RegistryEntry {
                    name: name(&who),
                    card: Card { description, capabilities, allow_from: AllowFrom(allow), max_concurrent_tasks },
                    status,
                    current_tasks: tasks.iter().map(|id| id.parse().unwrap()).collect(),
                    registered_at: seen.map(|second| Stamp::now(at(second))),
                    last_heartbeat: seen.map(|second| Stamp::now(at(second))),
                }
            })
    }

    proptest! {
        #[test]
        fn an_entry_written_is_the_entry_read(entry in entries(), other in any::<i64>()) {
            let mut registry = Registry::parse(format!(r#"{{"Other":{other}}}"#).as_bytes()).unwrap();
            registry.put(&entry);
            let again = Registry::parse(&registry.write().unwrap()).unwrap();
            prop_assert_eq!(&again, &registry);
            let read = again.get(&entry.name).unwrap().unwrap();
            let now = at(0);
            prop_assert_eq!(
                read.clone().into_agent(now, Duration::ZERO),
                entry.clone().into_agent(now, Duration::ZERO)
            );
            prop_assert_eq!((read.card, read.status), (entry.card, entry.status));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in arbitrary_bytes(), broken in mutated(SEED)) {
            for bytes in [bytes, broken] {
                if let Ok(registry) = Registry::parse(&bytes) {
                    registry.entries().for_each(drop);
                    prop_assert_eq!(&Registry::parse(&registry.write().unwrap()).unwrap(), &registry);
                }
            }
        }
    }
}
