//! The network office: HTTP, WebSocket, events, keys and limits over any [`Store`](amb_store::Store).
//!
//! [`serve`] is all of it: the caller owns the port, the store and the lifetime.
//!
//! A request passes the middleware (`middleware`: its id, its limits, its line in the log), routed to one file under
//! `routes`, and answered with a document of core or a problem (`problem`). What a verb wrote is offered to the listeners
//! (`hub`) after it is durable; a WebSocket (`ws`) and a long poll read the same log from a cursor. Other processes on the
//! same database get a hint (`replicas`).

#![forbid(unsafe_code)]

mod app;
mod body;
mod caller;
mod concurrency;
mod config;
mod dashboard;
mod deliveries;
mod drain;
mod hangup;
mod heartbeats;
mod hub;
mod idempotency;
mod in_flight;
mod jobs;
mod key;
mod listen;
mod metrics;
mod middleware;
mod mounts;
mod openapi;
mod problem;
mod query;
mod rate;
mod replicas;
mod reply;
mod response_cache;
mod routes;
mod serve;
mod text;
mod tls;
mod write_timeout;
mod ws;

pub use config::{Config, Registration, TlsFiles};
pub use key::{ApiKey, HouseholdToken};
pub use openapi::openapi_json;
pub use rate::{Rate, RateLimits};
pub use serve::{Listeners, serve};
