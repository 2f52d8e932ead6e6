//! Every story of an office, through HTTP and WebSocket.

use crate::post::Server;

amb_testing::office_conformance!(Server::fresh().await);
