//! Checks texts of callers: bounded, and without NUL, which PostgreSQL cannot store.

use crate::problem::Problem;

/// Checks a text's length in characters and that it has no NUL.
pub(crate) fn check(field: &str, text: &str, max_chars: usize) -> Result<(), Problem> {
    // Bytes settle it for nearly all.
    if text.len() > max_chars && text.chars().count() > max_chars {
        return Err(Problem::field(field, format!("has at most {max_chars} characters")));
    }
    match text.contains('\0') {
        true => Err(Problem::field(field, "cannot contain the NUL character")),
        false => Ok(()),
    }
}

/// The same for a text that may be missing.
pub(crate) fn check_some(field: &str, text: Option<&String>, max_chars: usize) -> Result<(), Problem> {
    text.map_or(Ok(()), |text| check(field, text, max_chars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_characters_and_nul_is_refused() {
        assert!(check("x", "ééé", 3).is_ok());
        assert!(check("x", "éééé", 3).is_err());
        assert!(check("x", "a\0", 3).is_err());
        assert!(check_some("x", None, 0).is_ok());
    }
}
