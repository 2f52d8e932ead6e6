//! Checks of text fields: a maximum length, and no NUL, which PostgreSQL cannot store.

use super::problem::Problem;

/// Checks a text's length in characters, and that it has no NUL. The error names the field.
pub(crate) fn check_text(field: &str, text: &str, max_chars: usize) -> Result<(), Problem> {
    // The length in bytes is cheaper to get, and an upper bound.
    if text.len() > max_chars && text.chars().count() > max_chars {
        return Err(Problem::field(field, format!("has at most {max_chars} characters")));
    }
    match text.contains('\0') {
        true => Err(Problem::field(field, "cannot contain the NUL character")),
        false => Ok(()),
    }
}

/// [`check_text`] for an optional field.
pub(crate) fn check_optional_text(field: &str, text: Option<&String>, max_chars: usize) -> Result<(), Problem> {
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
