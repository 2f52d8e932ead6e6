//! Request bodies of the network office. The server deserializes them, the client serializes them.
//!
//! Those with a token do not implement `Debug`.

use serde::{Deserialize, Serialize};

use super::Access;
use super::deserialize::{PlainName, message_ids, whole_number};
use crate::card::{AllowFrom, Card};
use crate::id::MessageId;
use crate::name::AgentName;
#[cfg(feature = "openapi")]
use crate::schema::Capability;
use crate::task::TaskState;

/// Who wants to be registered.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegisterBody {
    /// Letters, digits, hyphens and underscores. Not beginning with an underscore: the same agent may live in a directory, where
    /// such names are the office's own files. Not one that another agent or group has in other cases of letters, and no word
    /// that could be taken for an authority, such as `system`, `admin`, `assistant` or `user`.
    #[cfg_attr(feature = "openapi", schema(min_length = 3, max_length = 100, example = "alice-agent"))]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[A-Za-z0-9-][A-Za-z0-9_-]*$"))]
    pub name: String,
    /// How to reach the owner.
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = "^[^\\x00]*$", example = "alice@example.com"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_contact: Option<String>,
    /// What it is, in a sentence or two.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000, pattern = "^[^\\x00]*$"))]
    pub description: Option<String>,
    /// What it can do, in words of its own.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Capability>>, max_items = 64))]
    pub capabilities: Option<Vec<String>>,
    /// Whose messages and tasks it takes once connected: names, or `*` for everybody.
    pub allow_from: Option<AllowFrom>,
    /// How many tasks it works on at once.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000000))]
    pub max_concurrent_tasks: Option<u32>,
    /// The office's token, where registration needs one.
    #[cfg_attr(feature = "openapi", schema(max_length = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_token: Option<String>,
    /// The token of a household, to join it: its members write to each other without a connection.
    #[cfg_attr(feature = "openapi", schema(max_length = 255))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub household_token: Option<String>,
}

impl RegisterBody {
    /// A registration without tokens and contact.
    pub fn new(name: &AgentName, card: Card) -> Self {
        Self {
            name: name.to_string(),
            owner_contact: None,
            description: Some(card.description),
            capabilities: Some(card.capabilities),
            allow_from: Some(card.allow_from),
            max_concurrent_tasks: Some(card.max_concurrent_tasks),
            registration_token: None,
            household_token: None,
        }
    }
}

/// What to change; what is missing stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PatchBody))]
pub struct ProfilePatch {
    /// What it is, in a sentence or two.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000, pattern = "^[^\\x00]*$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it can do, in words of its own.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Capability>>, max_items = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    /// Whose messages and tasks it takes once connected: names, or `*` for everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_from: Option<AllowFrom>,
    /// How many tasks it works on at once.
    #[serde(default, deserialize_with = "whole_number", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000000))]
    pub max_concurrent_tasks: Option<u32>,
    /// Whether agents that are not connected with it find it in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discoverable: Option<bool>,
}

impl ProfilePatch {
    /// The card after the change.
    pub fn card(self, before: Card) -> Card {
        Card {
            description: self.description.unwrap_or(before.description),
            capabilities: self.capabilities.unwrap_or(before.capabilities),
            allow_from: self.allow_from.unwrap_or(before.allow_from),
            max_concurrent_tasks: self.max_concurrent_tasks.unwrap_or(before.max_concurrent_tasks),
        }
    }
}

impl From<Card> for ProfilePatch {
    /// Replaces the whole card.
    fn from(card: Card) -> Self {
        Self {
            description: Some(card.description),
            capabilities: Some(card.capabilities),
            allow_from: Some(card.allow_from),
            max_concurrent_tasks: Some(card.max_concurrent_tasks),
            discoverable: None,
        }
    }
}

/// How to change keys.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotateBody {
    /// How many seconds the old key goes on working; an hour unless said. 0 ends it, and its sockets, at once.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000000))]
    pub grace_seconds: Option<u32>,
}

/// Whom to ask.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConnectBody {
    /// Who is asked.
    #[serde(deserialize_with = "PlainName::plain")]
    pub target_agent_name: AgentName,
    /// What to say with it.
    #[cfg_attr(feature = "openapi", schema(max_length = 500, pattern = "^[^\\x00]*$"))]
    pub message: Option<String>,
}

/// Which request to approve.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApproveBody {
    /// The code that the requesting side passed on.
    #[cfg_attr(feature = "openapi", schema(example = "XC-992"))]
    pub verification_code: String,
}

/// With whom.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PeerBody {
    /// The other side.
    #[serde(deserialize_with = "PlainName::plain")]
    pub agent_name: AgentName,
}

/// Which messages.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IdsBody {
    /// Their ids.
    #[serde(deserialize_with = "message_ids")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Uuid>, max_items = 1000))]
    pub message_ids: Vec<MessageId>,
}

/// How many messages to claim, and for how long.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimBody {
    /// At most this many messages; 1 by default.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub limit: Option<u32>,
    /// Urgent ones first, then by time; else by time alone.
    pub urgent_first: Option<bool>,
    /// Duration of the lease, in seconds; 300 by default.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86400))]
    pub lease_seconds: Option<u32>,
}

/// Which messages, and for how long.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewBody {
    /// Their ids.
    #[serde(deserialize_with = "message_ids")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Uuid>, max_items = 1000))]
    pub message_ids: Vec<MessageId>,
    /// Duration of the new lease, in seconds; 300 by default.
    #[serde(default, deserialize_with = "whole_number")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86400))]
    pub lease_seconds: Option<u32>,
}

/// The new state of a task.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateBody {
    /// The state to reach; those skipped on the way are passed through.
    pub state: TaskState,
    /// Progress, result or reason.
    #[cfg_attr(feature = "openapi", schema(max_length = 10000, pattern = "^[^\\x00]*$"))]
    pub note: Option<String>,
}

/// Why a task is canceled.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelBody {
    /// The reason, sent to both sides.
    #[cfg_attr(feature = "openapi", schema(max_length = 10000, pattern = "^[^\\x00]*$"))]
    pub note: Option<String>,
}

/// Who is to have a task.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReassignBody {
    /// A member of the household.
    pub to: AgentName,
}

/// A new group.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupBody {
    /// Its name, unique in the office.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 3, max_length = 100, pattern = "^[A-Za-z0-9-][A-Za-z0-9_-]*$")
    )]
    pub name: String,
}

/// Which agent.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InviteBody {
    /// The agent; one that is invited must be connected with the caller.
    #[serde(deserialize_with = "PlainName::plain")]
    pub agent_name: AgentName,
}

/// With whom to share.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareBody {
    /// Who.
    #[serde(deserialize_with = "PlainName::plain")]
    pub agent_name: AgentName,
    /// What it may do; nothing any more where this is null or missing.
    pub access: Option<Access>,
}

/// Who the person is.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PersonBody {
    /// The name under which the person writes: as an agent's, or `person`, which no agent gets.
    #[cfg_attr(feature = "openapi", schema(min_length = 3, max_length = 100, example = "ann"))]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[A-Za-z0-9-][A-Za-z0-9_-]*$"))]
    pub name: String,
}

/// Another machine.
// Also serialized into the digest of an idempotency key, so its JSON must not change.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MachineBody {
    /// What its owner calls it.
    #[cfg_attr(feature = "openapi", schema(max_length = 100, pattern = "^[^\\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(default = "machine", example = "laptop"))]
    pub label: Option<String>,
}

/// The household to join.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JoinBody {
    /// The owner's token, or a machine's.
    pub household_token: String,
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    /// Checks the JSON of a body, and that nothing is lost when it is deserialized.
    #[track_caller]
    fn check<T: Serialize + DeserializeOwned>(body: &T, json: Value) {
        assert_eq!(serde_json::to_value(body).unwrap(), json);
        let back: T = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(back).unwrap(), json);
    }

    #[test]
    fn bodies_survive_serialization() {
        let bob: AgentName = "bob".parse().unwrap();
        let id = Uuid::from_u128(1);
        let message_ids = vec![MessageId::from(id)];
        check(&RotateBody { grace_seconds: Some(0) }, json!({ "grace_seconds": 0 }));
        check(
            &ConnectBody { target_agent_name: bob.clone(), message: None },
            json!({ "target_agent_name": "bob", "message": null }),
        );
        check(&ApproveBody { verification_code: "XC-992".into() }, json!({ "verification_code": "XC-992" }));
        check(&PeerBody { agent_name: bob.clone() }, json!({ "agent_name": "bob" }));
        check(&IdsBody { message_ids: message_ids.clone() }, json!({ "message_ids": [id] }));
        check(
            &ClaimBody { limit: Some(2), urgent_first: Some(true), lease_seconds: Some(60) },
            json!({ "limit": 2, "urgent_first": true, "lease_seconds": 60 }),
        );
        check(&RenewBody { message_ids, lease_seconds: Some(60) }, json!({ "message_ids": [id], "lease_seconds": 60 }));
        check(&StateBody { state: TaskState::Accepted, note: None }, json!({ "state": "accepted", "note": null }));
        check(&CancelBody { note: Some("late".into()) }, json!({ "note": "late" }));
        check(&ReassignBody { to: bob.clone() }, json!({ "to": "bob" }));
        check(&GroupBody { name: "team".into() }, json!({ "name": "team" }));
        check(&InviteBody { agent_name: bob.clone() }, json!({ "agent_name": "bob" }));
        check(
            &ShareBody { agent_name: bob, access: Some(Access::Read) },
            json!({ "agent_name": "bob", "access": "read" }),
        );
        check(&PersonBody { name: "ann".into() }, json!({ "name": "ann" }));
        check(&MachineBody { label: None }, json!({ "label": null }));
        check(&JoinBody { household_token: "t".into() }, json!({ "household_token": "t" }));
    }

    #[test]
    fn a_patch_has_only_the_fields_that_change() {
        check(&ProfilePatch { discoverable: Some(false), ..ProfilePatch::default() }, json!({ "discoverable": false }));
        let card = Card { description: "tests".into(), ..Card::default() };
        check(&ProfilePatch::from(card.clone()), serde_json::to_value(&card).unwrap());
        assert_eq!(ProfilePatch::from(card.clone()).card(Card::default()), card);
        assert_eq!(ProfilePatch::default().card(card.clone()), card);
    }

    #[test]
    fn a_registration_has_the_fields_of_the_card_and_only_the_tokens_that_are_needed() {
        let card = Card { description: "tests".into(), ..Card::default() };
        let body = RegisterBody::new(&"ann".parse().unwrap(), card);
        let json = json!({ "name": "ann", "description": "tests", "capabilities": [], "allow_from": ["*"],
            "max_concurrent_tasks": 3, "household_token": "t" });
        check(&RegisterBody { household_token: Some("t".into()), ..body }, json);
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        let claim = |limit| serde_json::from_value::<ClaimBody>(json!({ "limit": limit })).map(|body| body.limit);
        assert_eq!(claim(json!(3.0)).unwrap(), Some(3));
        assert_eq!(claim(json!(null)).unwrap(), None);
        for bad in [json!(1.5), json!(-1), json!(1_000_001), json!("3")] {
            assert!(claim(bad).is_err());
        }
    }
}
