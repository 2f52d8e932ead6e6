//! Answers that were given before. Agents ask for their inbox again and again, and mostly nothing has changed: then the same
//! bytes are the answer, and the database is not asked.
//!
//! The store says whether something has changed ([`Store::sight`](amb_store::Store::sight)). It is asked before it is read,
//! so an answer is never kept under a sight newer than itself.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use amb_core::OfficeError;
use amb_store::{Agent, AgentKey, Sight};
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::App;
use crate::problem::Problem;
use crate::reply::{json_response, json_text};

/// Most bytes kept of all answers together. Full means emptied: simpler than choosing, and rare.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Answers kept of one agent; the oldest goes first.
const EACH: usize = 4;
/// What an answer costs beside its text.
const OVERHEAD: usize = 128;

/// The answers.
#[derive(Debug, Default)]
pub(crate) struct Answers(RwLock<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    of: HashMap<AgentKey, Vec<Answer>>,
}

#[derive(Debug)]
struct Answer {
    sight: Sight,
    question: Box<str>,
    text: Bytes,
}

impl Answer {
    fn bytes(&self) -> usize {
        self.question.len() + self.text.len() + OVERHEAD
    }
}

impl Answers {
    fn get(&self, agent: AgentKey, sight: Sight, question: &str) -> Option<Bytes> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let given = kept.of.get(&agent)?.iter().find(|answer| *answer.question == *question)?;
        (given.sight == sight).then(|| given.text.clone())
    }

    fn keep(&self, agent: AgentKey, answer: Answer) {
        let bytes = answer.bytes();
        if bytes > MOST_BYTES {
            return;
        }
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
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
    sight: Option<Sight>,
}

impl<'a> Asked<'a> {
    /// To be called before the store is read.
    pub(crate) fn new(app: &'a App, caller: &Agent, uri: &'a Uri) -> Self {
        let question = uri.path_and_query().map_or("", |whole| whole.as_str());
        Self { app, agent: caller.key, question, sight: app.store.sight(caller.key) }
    }

    /// The answer that was given before, if it is still true.
    pub(crate) fn again(&self) -> Option<Response> {
        let text = self.app.answers.get(self.agent, self.sight?, self.question)?;
        Some(json_response(StatusCode::OK, text))
    }

    /// 200 with a document; kept where it is true until something changes.
    pub(crate) fn answer(self, document: &impl Serialize, lasting: bool) -> Response {
        let text: Bytes = match json_text(document) {
            Ok(text) => text.into(),
            Err(error) => return Problem::from(OfficeError::internal(error)).into_response(),
        };
        if let Some(sight) = self.sight.filter(|_| lasting) {
            let answer = Answer { sight, question: self.question.into(), text: text.clone() };
            self.app.answers.keep(self.agent, answer);
        }
        json_response(StatusCode::OK, text)
    }
}
