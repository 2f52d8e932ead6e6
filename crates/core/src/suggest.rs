//! Suggests the nearest known name in error messages.

use crate::name::AgentName;

/// Returns the candidate most similar to `wanted`, if it is similar enough to be a typo.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (likeness(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// How alike two names are, from 0 to 1. In a short name one typo lowers the usual measure so much that typos are
/// counted instead; the usual measure then decides among names with one typo each.
fn likeness(wanted: &str, candidate: &str) -> f64 {
    match strsim::osa_distance(wanted, candidate) {
        0 => 1.0,
        1 if candidate.chars().count() > 2 => 0.95 + 0.04 * strsim::jaro_winkler(wanted, candidate),
        _ => strsim::jaro_winkler(wanted, candidate),
    }
}

/// The error for a name that looks the same as another agent's but has other characters; shows the first that differ.
pub fn look_alike(wanted: &str, other: &str) -> String {
    let differ = wanted.chars().zip(other.chars()).zip(1..).find(|((one, another), _)| one != another);
    let shown = match differ {
        Some(((one, another), number)) => {
            format!("differ in character {number} (U+{:04X} and U+{:04X})", u32::from(one), u32::from(another))
        }
        None => "differ in length".to_owned(),
    };
    format!(
        "{wanted:?} and the agent {other:?} look the same and {shown}; to write to that agent, copy its name from \
         `amb agents`; for a new agent choose another name"
    )
}

/// `no agent "bbo"; did you mean "bob"?`
pub fn unknown_agent<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let name = AgentName::parse(wanted).ok();
    if let Some(other) = name.and_then(|name| known.clone().into_iter().find(|known| name.looks_like(known))) {
        return look_alike(wanted, other);
    }
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
        assert_eq!(nearest("an", ["ann", "dan"]), Some("ann"), "the same beginning counts");
        assert_eq!(nearest("ghost", ["coder", "writer"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_look_alike_name_is_not_reported_as_a_typo() {
        let said = unknown_agent("Zoe\u{308}", ["Zoe", "Zo\u{eb}"]);
        assert!(said.contains("look the same") && said.contains("character 3 (U+0065 and U+00EB)"), "{said}");
        assert!(unknown_agent("Zoee", ["Zoe"]).contains("did you mean"));
    }
}
