//! What is looked for, and what is shown of it.

use amb_core::mailbox::SearchQuery;

/// Hits answered by a search that names no limit, and the most that one may name.
const DEFAULT_HITS: u32 = 20;
const MAX_HITS: u32 = 100;
/// Characters shown around a hit.
const AROUND: usize = 80;

/// Words and phrases, as they stand in the query.
pub(crate) fn terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    // Every second piece between quotes is a phrase; an open quote at the end is taken as closed.
    for (n, piece) in text.split('"').enumerate() {
        if n % 2 == 1 {
            terms.push(piece.trim().to_owned());
        } else {
            terms.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    terms.retain(|term| term.contains(char::is_alphanumeric));
    terms.truncate(32);
    terms
}

/// How many hits to answer.
pub(crate) fn limit(query: &SearchQuery) -> u32 {
    query.limit.unwrap_or(DEFAULT_HITS).clamp(1, MAX_HITS)
}

/// The words around the first hit, or the beginning.
pub(crate) fn snippet(content: &str, terms: &[String]) -> String {
    let chars: Vec<char> = content.chars().collect();
    // Folding a character may change how many there are; place by place keeps the places.
    let folded: Vec<char> = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    let hit = terms.iter().filter_map(|term| {
        let term: Vec<char> = term.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect();
        folded.windows(term.len().max(1)).position(|window| window == term.as_slice())
    });
    let hit = hit.min().unwrap_or(0);
    let start = hit.saturating_sub(AROUND);
    let end = (hit + AROUND).min(chars.len());
    let middle: String = chars.get(start..end).unwrap_or_default().iter().collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < chars.len() { "…" } else { "" });
    format!("{before}{}{after}", middle.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_words_and_phrases() {
        assert_eq!(terms(r#"ship "release notes" now"#), ["ship", "release notes", "now"]);
        assert_eq!(terms(r#"an "open quote"#), ["an", "open quote"]);
        assert!(terms(r#" "" !! * "#).is_empty());
    }

    #[test]
    fn a_snippet_stands_around_its_hit() {
        let long = format!("{} the Needle {}", "x ".repeat(100), "y ".repeat(100));
        let shown = snippet(&long, &["needle".into()]);
        assert!(shown.contains("the Needle") && shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert!(shown.chars().count() <= 2 * AROUND + 2);
        assert_eq!(snippet("short", &["none".into()]), "short");
        assert_eq!(snippet("", &["none".into()]), "");
    }
}
