//! The hits of a search: a few words around each, and where to read on.

use super::content::{speaker, when};
use super::fence::Nonce;
use super::page::{Page, Tag};
use crate::doc::SearchHit;
use crate::name::AgentName;

/// Renders the hits in their order, for `me`.
pub fn render_search(hits: &[SearchHit], me: &AgentName, nonce: &Nonce) -> String {
    let mut page = Page::new(nonce);
    if hits.is_empty() {
        page.say("Nothing found.\n");
        return page.finish();
    }
    page.notice();
    for hit in hits {
        let from = speaker(&hit.sender_name, Some(me));
        let at = when(hit.created_at);
        let attributes = [
            ("from", Some(&*from)),
            ("at", Some(at.as_str())),
            ("id", Some(hit.message_id.as_str())),
            ("session", Some(hit.session_id.as_str())),
            ("subject", Some(hit.subject.as_str())),
        ];
        page.open(Tag::Hit, &attributes).body(&hit.snippet).close(Tag::Hit);
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::hostile::{frames, hostile_text, nonce};
    use proptest::prelude::*;

    fn hit(from: &str, subject: &str, snippet: &str) -> SearchHit {
        SearchHit {
            message_id: "m-1".parse().unwrap(),
            session_id: "s-1".parse().unwrap(),
            subject: subject.into(),
            sender_name: from.parse().unwrap(),
            created_at: "2026-02-22T10:05:00Z".parse().unwrap(),
            snippet: snippet.into(),
        }
    }

    #[test]
    fn a_hit_says_where_to_read_on() {
        let me = "bob".parse().unwrap();
        let shown = render_search(&[hit("bob", "Plan", "the deadline is")], &me, &nonce());
        assert_eq!(
            shown.split_once('\n').unwrap().1,
            "<hit-5eed5eed5eed from=\"you (this agent)\" at=\"2026-02-22T10:05:00Z\" id=\"m-1\" session=\"s-1\" \
             subject=\"Plan\">\nthe deadline is\n</hit-5eed5eed5eed>\n"
        );
        assert_eq!(render_search(&[], &me, &nonce()), "Nothing found.\n");
    }

    proptest! {
        #[test]
        fn a_hit_cannot_forge_another(subject in hostile_text(), snippet in hostile_text()) {
            let shown = render_search(&[hit("mallory", &subject, &snippet)], &"bob".parse().unwrap(), &nonce());
            let frames = frames(&shown, "hit-5eed5eed5eed");
            prop_assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{}", shown);
            prop_assert!(frames.opened[0].starts_with("hit-5eed5eed5eed from=\"mallory\" "), "{}", shown);
        }
    }
}
