//! Errors in responses, and the checks of single fields that lead to them.

use serde::{Deserialize, Serialize};

/// An error as the caller reads it (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Problem))]
// The office sends every field. All have a default, because the error of a proxy may have only some of them.
pub struct ProblemBody {
    /// A name for this kind of problem: `urn:amb:problem:` and the code.
    #[serde(rename = "type", default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub kind: String,
    /// The status in words.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub status: u16,
    /// One sentence that says what to do.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub detail: String,
    /// The kind of failure in a word that never changes.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub code: String,
    /// The fields that are wrong, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// What is wrong with one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Where it is: `body.name`, `query.limit`, `path.session_id`.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl FieldError {
    /// A field that is missing, malformed or out of bounds.
    pub fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into() }
    }
}

/// Checks a text's length in characters, and that it has no NUL, which PostgreSQL cannot store.
pub fn check_text(field: &str, text: &str, max_chars: usize) -> Result<(), FieldError> {
    // The length in bytes is cheaper to get, and an upper bound.
    if text.len() > max_chars && text.chars().count() > max_chars {
        return Err(FieldError::new(field, format!("has at most {max_chars} characters")));
    }
    match text.contains('\0') {
        true => Err(FieldError::new(field, "cannot contain the NUL character")),
        false => Ok(()),
    }
}

/// [`check_text`] for an optional field.
pub fn check_optional_text(field: &str, text: Option<&String>, max_chars: usize) -> Result<(), FieldError> {
    text.map_or(Ok(()), |text| check_text(field, text, max_chars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_characters_and_nul_is_refused() {
        assert!(check_text("x", "ééé", 3).is_ok());
        assert!(check_text("x", "éééé", 3).is_err());
        assert!(check_text("x", "a\0", 3).is_err());
        assert!(check_optional_text("x", None, 0).is_ok());
    }
}
