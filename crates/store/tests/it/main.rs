//! The store's promises, on every backend.

mod sqlite;
