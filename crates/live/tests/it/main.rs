//! Live peers, as their users see them: every promise on both brokers, NATS being a real server that is killed and
//! restarted where the promise is about that.

// The lint's exception for tests does not reach the functions and helpers that tests call.
#![allow(clippy::unwrap_used)]

mod auth;
mod broadcast;
mod buffers;
mod gates;
mod mail;
mod outage;
mod posting;
mod presence;
mod processes;
mod routing;
mod wire;
mod world;
