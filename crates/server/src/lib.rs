//! The network office: HTTP, WebSocket, events, keys and limits over any [`Store`](amb_store::Store).
//!
//! [`serve`] is the entry point: the caller owns the port, the store and the lifetime.
//!
//! A connection (`connection`) passes its requests to the middleware (`middleware`: request id, limits, log line),
//! which routes each to a handler. Handlers are one file for each endpoint under `routes`, and share `request`:
//! extractors, JSON responses and errors. After its commit, a verb's log entries are offered to subscribers (`hub`);
//! WebSockets (`ws`) and long polls read the same log from a cursor. Other processes on the same database get a hint
//! (`replicas`). Pages for people are in `dashboard`.

#![forbid(unsafe_code)]

mod app;
mod config;
mod connection;
mod dashboard;
mod deliveries;
mod heartbeats;
mod hub;
mod jobs;
mod metrics;
mod middleware;
mod mounts;
mod openapi;
mod rate;
mod replicas;
mod request;
mod response_cache;
mod routes;
mod serve;
mod ws;

pub use config::{Config, Registration, TlsFiles};
pub use openapi::openapi_json;
pub use rate::{Rate, RateLimits};
pub use request::{ApiKey, HouseholdToken};
pub use serve::{Listeners, serve};
