//! OpenAPI schemas of the types whose JSON differs from their fields: names, ids, kinds and cursors.

use std::borrow::Cow;

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::card::AllowFrom;
use crate::event::Cursor;
use crate::id::{ConnectionId, CorrelationId, MessageId, SessionId, TaskId};
use crate::limits::{MAX_ALLOW_FROM, MAX_CAPABILITY_CHARS, MAX_ID_CHARS, MAX_KIND_CHARS, MAX_NAME_CHARS};
use crate::message::Kind;
use crate::name::AgentName;

fn text(description: &str, max: usize, pattern: Option<&str>) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .min_length(Some(1))
        .max_length(Some(max))
        .pattern(pattern)
        .build()
        .into()
}

macro_rules! text_schema {
    ($type:ty, $name:literal, $description:literal, $max:expr, $pattern:expr) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                text($description, $max, $pattern)
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    };
}

/// The pattern of [`AgentName::parse_plain`].
const NAME: &str = "^[A-Za-z0-9-][A-Za-z0-9._-]*$";
/// The pattern of texts that the office stores.
const TEXT: &str = "^[^\\x00]*$";
/// A pattern for ids that every regex engine reads alike; it is stricter than what is accepted.
const WORD: &str = "^[!-~]+$";

text_schema!(AgentName, "AgentName", "An agent's name: its address.", MAX_NAME_CHARS, Some(NAME));
text_schema!(MessageId, "MessageId", "The id of a message.", MAX_ID_CHARS, Some(WORD));
text_schema!(SessionId, "SessionId", "The id of a session.", MAX_ID_CHARS, Some(WORD));
text_schema!(TaskId, "TaskId", "The id of a task.", MAX_ID_CHARS, Some(WORD));
text_schema!(ConnectionId, "ConnectionId", "The id of a connection, from its request on.", MAX_ID_CHARS, Some(WORD));
text_schema!(CorrelationId, "CorrelationId", "Correlates a question with its answers.", MAX_ID_CHARS, Some(WORD));
text_schema!(Kind, "Kind", "message, task, task_update, or a label of another system.", MAX_KIND_CHARS, Some(WORD));

/// An entry of `capabilities` in a request body.
pub(crate) struct Capability;
text_schema!(Capability, "Capability", "Something an agent can do, in a few words.", MAX_CAPABILITY_CHARS, Some(TEXT));

impl PartialSchema for AllowFrom {
    fn schema() -> RefOr<Schema> {
        let name = text("A name, or * for everybody.", MAX_NAME_CHARS, Some("^([*]|[A-Za-z0-9-][A-Za-z0-9._-]*)$"));
        ArrayBuilder::new()
            .items(name)
            .max_items(Some(MAX_ALLOW_FROM))
            .description(Some("Whose messages an agent accepts: `*` is everybody, an empty list nobody."))
            .build()
            .into()
    }
}

impl ToSchema for AllowFrom {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("AllowFrom")
    }
}

impl PartialSchema for Cursor {
    /// A number: only the network office, which numbers its entries, has an OpenAPI document.
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(0))
            .description(Some("A position in a mailbox's log: give it back to go on after it."))
            .build()
            .into()
    }
}

impl ToSchema for Cursor {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Cursor")
    }
}
