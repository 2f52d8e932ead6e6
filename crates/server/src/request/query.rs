//! Query strings and path segments, and checks of the values in them.

use std::fmt::Display;
use std::ops::RangeInclusive;

use amb_core::AgentName;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use uuid::Uuid;

use super::problem::Problem;

/// Extracts the query string. Every failure is a [`Problem`].
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

/// Replaces the standard library's messages about bad numbers.
fn plain(detail: &str) -> &str {
    let not_a_number = ["invalid digit", "cannot parse integer", "number too large"];
    match not_a_number.iter().any(|words| detail.starts_with(words)) {
        true => "must be a whole number, not negative and not too large",
        false => detail,
    }
}

/// Extracts the only parameter of the path.
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

/// Deserializes an optional cursor. Cursors are `i64` in the databases.
pub(crate) fn cursor<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(de)? {
        Some(cursor) if i64::try_from(cursor).is_err() => Err(D::Error::custom("is too large for a cursor")),
        cursor => Ok(cursor),
    }
}

/// Parses a UUID. The error names the field.
pub(crate) fn parse_id<T: From<Uuid>>(field: &str, text: &str) -> Result<T, Problem> {
    Uuid::parse_str(text).map(T::from).map_err(|_| Problem::field(field, "must be a UUID"))
}

/// [`parse_id`] for an optional field.
pub(crate) fn parse_optional_id<T: From<Uuid>>(field: &str, text: Option<&str>) -> Result<Option<T>, Problem> {
    text.map(|text| parse_id(field, text)).transpose()
}

/// Parses the name of an agent or a group in the path.
pub(crate) fn path_name(text: &str) -> Result<AgentName, Problem> {
    AgentName::parse_plain(text).map_err(|bad| Problem::field("path.name", bad.to_string()))
}

/// The default of a `limit` parameter, for serde.
pub(crate) fn default_limit<const N: u32>() -> u32 {
    N
}

/// Fails for a number outside of the range. The error names the field.
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

/// Deserializes a flag in upper or lower case, as Python's web frameworks do: some clients send `True` or `1`.
pub(crate) fn boolean<'de, D: Deserializer<'de>>(de: D) -> Result<bool, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(de)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(D::Error::custom("must be true or false")),
    }
}

/// [`boolean`] for an optional field.
pub(crate) fn optional_boolean<'de, D: Deserializer<'de>>(de: D) -> Result<Option<bool>, D::Error> {
    boolean(de).map(Some)
}
