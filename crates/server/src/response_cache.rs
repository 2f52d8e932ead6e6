//! Responses kept in memory: agents poll their inbox, and mostly nothing has changed. Then the same bytes are the response,
//! and the database is not read.
//!
//! The store says by a version whether something has changed ([`Store::view_version`](amb_store::Store::view_version)). The
//! version is read before the mail, so a response is never kept under a version newer than itself.

use amb_core::OfficeError;
use amb_store::{Agent, AgentKey, ViewVersion};
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use serde::Serialize;

use crate::app::App;
use crate::problem::Problem;
use crate::reply::{json_response, json_text};

/// Most bytes of all kept responses together.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How many responses that is, roughly: the cache sizes its tables by it.
const EXPECTED: usize = 4_096;
/// Memory of an entry beside its text.
const OVERHEAD: usize = 128;

/// The kept responses.
#[derive(Debug)]
pub(crate) struct ResponseCache(Cache<CacheKey, CachedResponse, ByteWeighter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    agent: AgentKey,
    path_and_query: Box<str>,
}

/// A [`CacheKey`] to look up, without a copy of its text.
#[derive(Hash)]
struct BorrowedCacheKey<'a> {
    agent: AgentKey,
    path_and_query: &'a str,
}

impl Equivalent<CacheKey> for BorrowedCacheKey<'_> {
    fn equivalent(&self, key: &CacheKey) -> bool {
        self.agent == key.agent && *self.path_and_query == *key.path_and_query
    }
}

#[derive(Debug, Clone)]
struct CachedResponse {
    version: ViewVersion,
    text: Bytes,
}

#[derive(Debug, Clone)]
struct ByteWeighter;

impl Weighter<CacheKey, CachedResponse> for ByteWeighter {
    fn weight(&self, request: &CacheKey, kept: &CachedResponse) -> u64 {
        (request.path_and_query.len() + kept.text.len() + OVERHEAD) as u64
    }
}

impl Default for ResponseCache {
    fn default() -> Self {
        Self(Cache::with_weighter(EXPECTED, MAX_BYTES, ByteWeighter))
    }
}

impl ResponseCache {
    fn get(&self, agent: AgentKey, version: ViewVersion, path_and_query: &str) -> Option<Bytes> {
        let kept = self.0.get(&BorrowedCacheKey { agent, path_and_query })?;
        (kept.version == version).then_some(kept.text)
    }

    fn put(&self, agent: AgentKey, version: ViewVersion, path_and_query: &str, text: Bytes) {
        self.0.insert(CacheKey { agent, path_and_query: path_and_query.into() }, CachedResponse { version, text });
    }
}

/// A request whose response may be kept.
pub(crate) struct CachedRequest<'a> {
    app: &'a App,
    agent: AgentKey,
    path_and_query: &'a str,
    version: Option<ViewVersion>,
}

impl<'a> CachedRequest<'a> {
    /// To be called before the store is read.
    pub(crate) fn new(app: &'a App, caller: &Agent, uri: &'a Uri) -> Self {
        let path_and_query = uri.path_and_query().map_or("", |whole| whole.as_str());
        Self { app, agent: caller.key, path_and_query, version: app.store.view_version(caller.key) }
    }

    /// The kept response, if it is still true.
    pub(crate) fn cached(&self) -> Option<Response> {
        let text = self.app.response_cache.get(self.agent, self.version?, self.path_and_query)?;
        Some(json_response(StatusCode::OK, text))
    }

    /// 200 with a document, kept where `lasting` says that only a new version changes it.
    pub(crate) fn respond(self, document: &impl Serialize, lasting: bool) -> Response {
        let text: Bytes = match json_text(document) {
            // Without spare capacity, since it may be kept.
            Ok(text) => text.into_boxed_slice().into(),
            Err(error) => return Problem::from(OfficeError::internal(error)).into_response(),
        };
        if let Some(version) = self.version.filter(|_| lasting) {
            self.app.response_cache.put(self.agent, version, self.path_and_query, text.clone());
        }
        json_response(StatusCode::OK, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(number: usize) -> AgentKey {
        number.to_string().parse().unwrap()
    }

    fn text(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    #[test]
    fn a_response_is_given_again_to_the_same_agent_for_the_same_request_under_the_same_version() {
        let cache = ResponseCache::default();
        cache.put(agent(1), 7.into(), "/inbox", text(3));
        let get = |number, version: u64, request| cache.get(agent(number), version.into(), request);
        assert_eq!(get(1, 7, "/inbox").unwrap(), "xxx");
        assert!(get(2, 7, "/inbox").is_none(), "another agent's");
        assert!(get(1, 8, "/inbox").is_none(), "something changed");
        assert!(get(1, 7, "/inbox?unread_only=true").is_none(), "another request");
        cache.put(agent(1), 8.into(), "/inbox", text(4));
        assert_eq!(get(1, 8, "/inbox").unwrap(), "xxxx");
    }

    #[test]
    fn all_kept_responses_together_are_bounded_in_bytes() {
        let cache = ResponseCache::default();
        cache.put(agent(0), 1.into(), "/inbox", text(MAX_BYTES as usize));
        assert!(cache.get(agent(0), 1.into(), "/inbox").is_none(), "one that is too long for all");
        for number in 1..1_000 {
            cache.put(agent(number), 1.into(), "/inbox", text(MAX_BYTES as usize / 100));
            assert!(cache.0.weight() <= MAX_BYTES);
        }
        assert!(cache.0.weight() > MAX_BYTES / 2, "what fits is kept");
        assert!(cache.get(agent(999), 1.into(), "/inbox").is_some());
    }
}
