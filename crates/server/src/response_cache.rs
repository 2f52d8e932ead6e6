//! Cache of responses: agents poll their inbox, and mostly nothing has changed.
//!
//! A response is valid while the store returns the same version for its agent
//! ([`Store::view_version`](amb_store::Store::view_version)). The version is read before the mail, so a response is
//! never cached under a version newer than itself.

use amb_store::{Agent, AgentKey, ViewVersion};
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use serde::Serialize;

use crate::app::App;
use crate::request::{json_response, to_json};

/// Maximum size of all cached responses together.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Estimated number of cached responses, by which the cache sizes its tables.
const EXPECTED: usize = 4_096;
/// Estimated memory of an entry besides its JSON, in bytes.
const OVERHEAD: usize = 128;

#[derive(Debug)]
pub(crate) struct ResponseCache(Cache<CacheKey, CachedResponse, ByteWeighter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    agent: AgentKey,
    path_and_query: Box<str>,
}

/// A [`CacheKey`] for lookups, which borrows its text.
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
    json: Bytes,
}

#[derive(Debug, Clone)]
struct ByteWeighter;

impl Weighter<CacheKey, CachedResponse> for ByteWeighter {
    fn weight(&self, key: &CacheKey, response: &CachedResponse) -> u64 {
        (key.path_and_query.len() + response.json.len() + OVERHEAD) as u64
    }
}

impl Default for ResponseCache {
    fn default() -> Self {
        Self(Cache::with_weighter(EXPECTED, MAX_BYTES, ByteWeighter))
    }
}

impl ResponseCache {
    fn get(&self, agent: AgentKey, version: ViewVersion, path_and_query: &str) -> Option<Bytes> {
        let cached = self.0.get(&BorrowedCacheKey { agent, path_and_query })?;
        (cached.version == version).then_some(cached.json)
    }

    fn put(&self, agent: AgentKey, version: ViewVersion, path_and_query: &str, json: Bytes) {
        self.0.insert(CacheKey { agent, path_and_query: path_and_query.into() }, CachedResponse { version, json });
    }
}

/// A request whose response may be cached.
pub(crate) struct CachedRequest<'a> {
    app: &'a App,
    agent: AgentKey,
    path_and_query: &'a str,
    /// `None` where the store has no versions.
    version: Option<ViewVersion>,
}

impl<'a> CachedRequest<'a> {
    /// Must be called before the store is read.
    pub(crate) fn new(app: &'a App, caller: &Agent, uri: &'a Uri) -> Self {
        let path_and_query = uri.path_and_query().map_or("", |whole| whole.as_str());
        Self { app, agent: caller.key, path_and_query, version: app.store.view_version(caller.key) }
    }

    /// Returns the cached response, if it is still valid.
    pub(crate) fn cached(&self) -> Option<Response> {
        let json = self.app.response_cache.get(self.agent, self.version?, self.path_and_query)?;
        Some(json_response(StatusCode::OK, json))
    }

    /// Returns 200 with a document. It is cached if `cacheable`: only a new version changes it.
    pub(crate) fn respond(self, document: &impl Serialize, cacheable: bool) -> Response {
        let json: Bytes = match to_json(document) {
            // A boxed slice has no spare capacity.
            Ok(json) => json.into_boxed_slice().into(),
            Err(problem) => return problem.into_response(),
        };
        if let Some(version) = self.version.filter(|_| cacheable) {
            self.app.response_cache.put(self.agent, version, self.path_and_query, json.clone());
        }
        json_response(StatusCode::OK, json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(number: usize) -> AgentKey {
        number.to_string().parse().unwrap()
    }

    fn json(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    #[test]
    fn a_cached_response_is_valid_for_one_agent_request_and_version() {
        let cache = ResponseCache::default();
        cache.put(agent(1), 7.into(), "/inbox", json(3));
        let get = |number, version: u64, request| cache.get(agent(number), version.into(), request);
        assert_eq!(get(1, 7, "/inbox").unwrap(), "xxx");
        assert!(get(2, 7, "/inbox").is_none(), "another agent");
        assert!(get(1, 8, "/inbox").is_none(), "another version");
        assert!(get(1, 7, "/inbox?unread_only=true").is_none(), "another request");
        cache.put(agent(1), 8.into(), "/inbox", json(4));
        assert_eq!(get(1, 8, "/inbox").unwrap(), "xxxx");
    }

    #[test]
    fn the_size_of_the_cache_is_bounded_in_bytes() {
        let cache = ResponseCache::default();
        cache.put(agent(0), 1.into(), "/inbox", json(MAX_BYTES as usize));
        assert!(cache.get(agent(0), 1.into(), "/inbox").is_none(), "larger than the cache");
        for number in 1..1_000 {
            cache.put(agent(number), 1.into(), "/inbox", json(MAX_BYTES as usize / 100));
            assert!(cache.0.weight() <= MAX_BYTES);
        }
        assert!(cache.0.weight() > MAX_BYTES / 2, "it is used");
        assert!(cache.get(agent(999), 1.into(), "/inbox").is_some());
    }
}
