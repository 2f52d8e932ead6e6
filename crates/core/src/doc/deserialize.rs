//! Deserializers of fields in requests.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use crate::id::MessageId;
use crate::name::AgentName;

/// Maximum number of ids in one request.
const MAX_IDS: usize = 1_000;

/// An optional whole number up to a million. Accepts `3.0`, which JSON Schema counts as an integer.
pub(super) fn whole_number<'de, D: Deserializer<'de>>(field: D) -> Result<Option<u32>, D::Error> {
    let number = whole_up_to(field, 1_000_000, "must be a whole number from 0 to 1000000")?;
    Ok(number.map(|number| number as u32))
}

/// An optional whole number of seconds, at most a hundred years. Accepts `3.0`, as [`whole_number`] does.
pub(super) fn seconds<'de, D: Deserializer<'de>>(field: D) -> Result<Option<u64>, D::Error> {
    whole_up_to(field, 3_155_760_000, "must be a whole number of seconds, 3155760000 at most")
}

/// `max` must be below 2^53, where the conversion from `f64` is exact.
fn whole_up_to<'de, D: Deserializer<'de>>(field: D, max: u64, refusal: &str) -> Result<Option<u64>, D::Error> {
    match Option::<f64>::deserialize(field)? {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 && (0.0..=max as f64).contains(&number) => Ok(Some(number as u64)),
        Some(_) => Err(D::Error::custom(refusal)),
    }
}

/// Names that agents of the network office can have; a directory allows more.
pub trait PlainName: Sized {
    /// Deserializes a field of a request.
    fn plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error>;
}

impl PlainName for AgentName {
    fn plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        AgentName::deserialize(field).and_then(check_plain)
    }
}

impl PlainName for Option<AgentName> {
    fn plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        Option::deserialize(field)?.map(check_plain).transpose()
    }
}

impl PlainName for Vec<AgentName> {
    fn plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        Vec::deserialize(field)?.into_iter().map(check_plain).collect()
    }
}

fn check_plain<E: Error>(name: AgentName) -> Result<AgentName, E> {
    AgentName::parse_plain(name.as_str()).map_err(E::custom)
}

/// Ids of messages of the network office, which are UUIDs; a directory has others.
pub(super) fn message_ids<'de, D: Deserializer<'de>>(field: D) -> Result<Vec<MessageId>, D::Error> {
    let ids = Vec::<Uuid>::deserialize(field)?;
    match ids.len() > MAX_IDS {
        true => Err(D::Error::custom(format_args!("has at most {MAX_IDS} ids"))),
        false => Ok(ids.into_iter().map(MessageId::from).collect()),
    }
}
