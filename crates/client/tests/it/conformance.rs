//! The conformance tests of offices, through HTTP and WebSocket.

use crate::test_server::Server;

amb_testing::office_conformance!(Server::fresh().await);
