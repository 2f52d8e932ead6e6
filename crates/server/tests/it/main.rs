//! Tests of the network office through HTTP and WebSocket, on every store.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

mod test_server;

mod agents;
mod bounds;
mod connections;
mod consent;
mod dashboard;
mod dashboard_acts;
mod directory;
mod events;
mod flows;
mod hangup;
mod hostile;
mod household;
mod idempotency;
mod inbox;
mod kept;
mod keys;
mod limits;
mod messages;
mod openapi;
mod operating;
mod privacy;
mod quotas;
mod races;
mod receipts;
mod registration;
mod replica_mounts;
mod replicas;
mod security;
mod shared;
mod socket;
mod stepping_in;
mod tasks;
mod tls;
mod wake;
mod web;

/// Declares a test of each function for each store.
#[macro_export]
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::test_server::TestServer::sqlite().await).await;
                }
            )*
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::test_server::TestServer::postgres().await).await;
                }
            )*
        }
    };
}
