//! Responses that were given before. Agents ask for their inbox again and again, and mostly nothing has changed: then the
//! same bytes are the response, and the database is not read.
//!
//! The store says whether something has changed ([`Store::view_version`](amb_store::Store::view_version)). It is asked before
//! it is read, so a response is never kept under a version newer than itself.

use parking_lot::RwLock;
use std::collections::HashMap;

use amb_core::OfficeError;
use amb_store::{Agent, AgentKey, ViewVersion};
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::App;
use crate::problem::Problem;
use crate::reply::{json_response, json_text};

/// Most bytes kept of all responses together. Full means emptied: simpler than choosing, and rare.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Responses kept of one agent; the oldest goes first.
const EACH: usize = 4;
/// What an answer costs beside its text.
const OVERHEAD: usize = 128;

/// The responses that are kept.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache(RwLock<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    of: HashMap<AgentKey, Vec<Answer>>,
}

#[derive(Debug)]
struct Answer {
    version: ViewVersion,
    question: Box<str>,
    text: Bytes,
}

impl Answer {
    fn bytes(&self) -> usize {
        self.question.len() + self.text.len() + OVERHEAD
    }
}

impl ResponseCache {
    fn get(&self, agent: AgentKey, version: ViewVersion, question: &str) -> Option<Bytes> {
        let kept = self.0.read();
        let given = kept.of.get(&agent)?.iter().find(|answer| *answer.question == *question)?;
        (given.version == version).then(|| given.text.clone())
    }

    fn keep(&self, agent: AgentKey, answer: Answer) {
        let bytes = answer.bytes();
        if bytes > MOST_BYTES {
            return;
        }
        let mut guard = self.0.write();
        let kept = &mut *guard;
        if kept.bytes + bytes > MOST_BYTES {
            *kept = Kept::default();
        }
        let theirs = kept.of.entry(agent).or_default();
        let same = theirs.iter().position(|given| given.question == answer.question);
        if let Some(at) = same.or_else(|| (theirs.len() == EACH).then_some(0)) {
            kept.bytes -= theirs.remove(at).bytes();
        }
        kept.bytes += bytes;
        theirs.push(answer);
    }
}

/// A question that may have been asked before.
pub(crate) struct Asked<'a> {
    app: &'a App,
    agent: AgentKey,
    question: &'a str,
    version: Option<ViewVersion>,
}

impl<'a> Asked<'a> {
    /// To be called before the store is read.
    pub(crate) fn new(app: &'a App, caller: &Agent, uri: &'a Uri) -> Self {
        let question = uri.path_and_query().map_or("", |whole| whole.as_str());
        Self { app, agent: caller.key, question, version: app.store.view_version(caller.key) }
    }

    /// The answer that was given before, if it is still true.
    pub(crate) fn again(&self) -> Option<Response> {
        let text = self.app.response_cache.get(self.agent, self.version?, self.question)?;
        Some(json_response(StatusCode::OK, text))
    }

    /// 200 with a document; kept where it is true until something changes.
    pub(crate) fn answer(self, document: &impl Serialize, lasting: bool) -> Response {
        let text: Bytes = match json_text(document) {
            // Not a byte more than there is: it may be kept.
            Ok(text) => text.into_boxed_slice().into(),
            Err(error) => return Problem::from(OfficeError::internal(error)).into_response(),
        };
        if let Some(version) = self.version.filter(|_| lasting) {
            let answer = Answer { version, question: self.question.into(), text: text.clone() };
            self.app.response_cache.keep(self.agent, answer);
        }
        json_response(StatusCode::OK, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: u64, question: &str, bytes: usize) -> Answer {
        Answer { version: version.into(), question: question.into(), text: vec![b'x'; bytes].into() }
    }

    fn agent(number: usize) -> AgentKey {
        number.to_string().parse().unwrap()
    }

    #[test]
    fn an_answer_is_given_again_to_the_same_agent_for_the_same_question_under_the_same_version() {
        let answers = ResponseCache::default();
        answers.keep(agent(1), answer(7, "/inbox", 3));
        let get = |number, version: u64, question| answers.get(agent(number), version.into(), question);
        assert_eq!(get(1, 7, "/inbox").unwrap(), "xxx");
        assert!(get(2, 7, "/inbox").is_none(), "another agent's");
        assert!(get(1, 8, "/inbox").is_none(), "something changed");
        assert!(get(1, 7, "/inbox?unread_only=true").is_none(), "another question");
        answers.keep(agent(1), answer(8, "/inbox", 4));
        assert_eq!(get(1, 8, "/inbox").unwrap(), "xxxx");
    }

    #[test]
    fn what_is_kept_is_bounded_for_each_agent_and_for_all() {
        let answers = ResponseCache::default();
        for question in ["/a", "/b", "/c", "/d", "/e"] {
            answers.keep(agent(1), answer(1, question, 1));
        }
        assert!(answers.get(agent(1), 1.into(), "/a").is_none(), "the oldest went");
        assert!(answers.get(agent(1), 1.into(), "/b").is_some());
        answers.keep(agent(2), answer(1, "/a", MOST_BYTES));
        assert!(answers.get(agent(2), 1.into(), "/a").is_none(), "one that is too long for all");
        for number in 0..100 {
            answers.keep(agent(number), answer(1, "/a", MOST_BYTES / 10));
            let kept = answers.0.read();
            let bytes: usize = kept.of.values().flatten().map(Answer::bytes).sum();
            assert_eq!(kept.bytes, bytes);
            assert!(bytes <= MOST_BYTES);
        }
        assert!(answers.get(agent(99), 1.into(), "/a").is_some());
    }
}
