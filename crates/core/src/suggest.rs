//! The nearest known name, for errors that help.

/// The candidate most like `wanted`, if any is near enough that a person may have meant it.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (likeness(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// How alike two names are, from 0 to 1. In a short name one slip changes so much that it has to be counted as a slip.
fn likeness(wanted: &str, candidate: &str) -> f64 {
    match strsim::osa_distance(wanted, candidate) {
        0 => 1.0,
        1 if candidate.chars().count() > 2 => 0.95,
        _ => strsim::jaro_winkler(wanted, candidate),
    }
}

/// `no agent "bbo"; did you mean "bob"?`
pub fn unknown_agent<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(wanted, known) {
        Some(near) => format!("no agent {wanted:?}; did you mean {near:?}?"),
        None => format!("no agent {wanted:?}; `amb agents` lists those you can write to"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(nearest("reseacher", ["coder", "researcher", "writer"]), Some("researcher"));
        assert_eq!(nearest("Coder", ["coder"]), Some("coder"));
        assert_eq!(nearest("bne", ["ann", "ben"]), Some("ben"));
        assert_eq!(nearest("ghost", ["coder", "writer"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
