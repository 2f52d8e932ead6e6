//! Integration tests of the store on both backends.

#![allow(clippy::unwrap_used)]

mod copies;
mod files;
mod migration;
mod moving;
mod postgres;
mod postgres_engine;
mod postgres_locks;
mod postgres_sends;
mod replicas;
mod sqlite;
mod support;
mod tls;
mod usage;
