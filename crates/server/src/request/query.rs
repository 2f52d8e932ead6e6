//! Query strings and path segments.

use std::fmt::Display;
use std::ops::RangeInclusive;

use amb_core::AgentName;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use uuid::Uuid;

use crate::problem::Problem;

/// The query string, with every failure a problem.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(QueryRejection::FailedToDeserializeQueryString(bad)) => {
                let text = bad.body_text();
                let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(match text.split_once(": ") {
                    Some((field, detail)) => Problem::field(format!("query.{field}"), plain(detail)),
                    None => Problem::field("query", text),
                })
            }
            Err(_) => Err(Problem::field("query", "cannot be read")),
        }
    }
}

/// Replaces the standard library's message about a bad number.
fn plain(detail: &str) -> &str {
    let not_a_number = ["invalid digit", "cannot parse integer", "number too large"];
    match not_a_number.iter().any(|words| detail.starts_with(words)) {
        true => "must be a whole number, not negative and not too large",
        false => detail,
    }
}

/// One segment of the path, as text.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) if text.contains('\0') => Err(Problem::field("path", "cannot contain the NUL character")),
            Ok(Path(text)) => Ok(Self(text)),
            Err(PathRejection::FailedToDeserializePathParams(_)) => {
                Err(Problem::malformed("the path is not valid UTF-8"))
            }
            Err(_) => Err(Problem::malformed("the path cannot be read")),
        }
    }
}

/// A place in a log: as far as numbers go in every store and in JSON.
pub(crate) fn place<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u64>, D::Error> {
    let place = Option::<u64>::deserialize(de)?;
    match place {
        Some(place) if i64::try_from(place).is_err() => Err(D::Error::custom("is too large for a cursor")),
        place => Ok(place),
    }
}

/// Parses an id, or returns a problem that names the field.
pub(crate) fn parse_id<T: From<Uuid>>(field: &str, text: &str) -> Result<T, Problem> {
    Uuid::parse_str(text).map(T::from).map_err(|_| Problem::field(field, "must be a UUID"))
}

/// The same where the id may be missing.
pub(crate) fn parse_optional_id<T: From<Uuid>>(field: &str, text: Option<&str>) -> Result<Option<T>, Problem> {
    text.map(|text| parse_id(field, text)).transpose()
}

/// The name of an agent or a group in the path, as a server knows it.
pub(crate) fn path_name(text: &str) -> Result<AgentName, Problem> {
    AgentName::parse_plain(text).map_err(|bad| Problem::field("path.name", bad.to_string()))
}

/// The limit of a page where a request has none.
pub(crate) fn default_limit<const N: u32>() -> u32 {
    N
}

/// Refuses a number outside of the range.
pub(crate) fn check_range<N: PartialOrd + Display>(
    field: &str,
    number: N,
    range: RangeInclusive<N>,
) -> Result<(), Problem> {
    match range.contains(&number) {
        true => Ok(()),
        false => Err(Problem::field(field, format!("must be {} to {}", range.start(), range.end()))),
    }
}

/// A flag, in any case of letters, as the web frameworks of Python read it: `True` and `1` are what some clients send.
pub(crate) fn boolean<'de, D: Deserializer<'de>>(de: D) -> Result<bool, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(de)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(D::Error::custom("must be true or false")),
    }
}

/// The same where it may be missing.
pub(crate) fn optional_boolean<'de, D: Deserializer<'de>>(de: D) -> Result<Option<bool>, D::Error> {
    boolean(de).map(Some)
}
