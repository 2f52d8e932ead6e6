//! Search. Each database has its own index.

use amb_core::doc::SearchHit;
use amb_core::mailbox::SearchQuery;
use amb_core::{AgentName, MessageId, SessionId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::agents::row_of;
use super::messages::shown_to;
use crate::engine::{Db, Engine, Query, ReadLength, Tried, Wanted, read, values};
use crate::error::Result;
use crate::types::{Agent, to_micros};

/// The default and the maximum number of hits.
const DEFAULT_HITS: u32 = 20;
const MAX_HITS: u32 = 100;
/// Characters of a snippet before and after the hit.
const AROUND: usize = 80;

/// Splits a query into words and quoted phrases.
pub(super) fn terms(text: &str) -> Vec<String> {
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

/// Returns the text around the first hit, or its beginning.
fn snippet(content: &str, terms: &[String]) -> String {
    let chars: Vec<char> = content.chars().collect();
    // Lower case may have more characters; only the first of each is compared, so that positions stay the same.
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

/// Full text search.
#[async_trait]
pub trait SearchVerbs: Engine {
    /// Searches the caller's own mail, sent and received, newest first. Mail is found once it is indexed
    /// ([`Store::index_mail`](crate::Store::index_mail)).
    async fn search(&self, caller: &Agent, query: SearchQuery) -> Result<Vec<SearchHit>> {
        let asked = (caller.clone(), query);
        read(self, ReadLength::Long, asked, |db, (caller, query)| search(db, caller, query).boxed()).await
    }
}

impl<E: Engine> SearchVerbs for E {}

/// A time after all messages, for searches without an end.
pub(super) const THE_END: Timestamp = Timestamp::constant(253_402_207_199, 0);

/// Id, session, subject, sender, time and text of a message.
type Hit = (MessageId, SessionId, String, AgentName, Timestamp, String);

async fn search(db: &mut dyn Db, caller: &Agent, query: &SearchQuery) -> Tried<Vec<SearchHit>> {
    let in_subject = query.subject.as_deref().unwrap_or_default();
    let (text, subject) = (terms(&query.text), terms(in_subject));
    let matches_nothing =
        |asked: &str, terms: &[String]| asked.contains('\0') || (!asked.trim().is_empty() && terms.is_empty());
    if matches_nothing(&query.text, &text) || matches_nothing(in_subject, &subject) {
        return Ok(Vec::new());
    }
    let from = match &query.from {
        Some(from) => match row_of(db, from).await? {
            None => return Ok(Vec::new()),
            known => known,
        },
        None => None,
    };
    let dialect = db.dialect();
    let sql = format!(
        "SELECT m.public_id, s.public_id, s.subject, f.name, m.created_at, m.content FROM {}
         JOIN sessions s ON s.id = m.session_id JOIN agents f ON f.id = m.sender_id
         WHERE {} ORDER BY w.place DESC, m.id DESC",
        dialect.hits,
        shown_to("$1")
    );
    let [who, words, subjects] =
        (dialect.words)(&Wanted { reader: Some(caller.key.0), from, text: &text, subject: &subject });
    let (after, before) =
        (query.after.map_or_else(Timestamp::default, to_micros), query.before.map_or(THE_END, to_micros));
    let limit = query.limit.unwrap_or(DEFAULT_HITS).clamp(1, MAX_HITS);
    let values = values![caller.key.0, &who, &words, &subjects, after, before, limit];
    let found: Vec<Hit> = db.rows(&sql, values).await?;
    let hit = |(message_id, session_id, subject, sender_name, created_at, content): Hit| SearchHit {
        message_id,
        session_id,
        subject,
        sender_name,
        created_at,
        snippet: snippet(&content, &text),
    };
    Ok(found.into_iter().map(hit).collect())
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
