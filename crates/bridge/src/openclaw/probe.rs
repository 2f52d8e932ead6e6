//! Which routes a gateway offers, found out without running anything.

use reqwest::StatusCode;
use serde_json::json;

use super::{CONNECT_TIMEOUT, Gateway, GatewayRoute, http_error, socket};
use crate::runtime::{FailureKind, TurnError};

impl Gateway {
    /// The best route that the gateway offers: its own protocol, where a turn that was cut off can be joined again;
    /// else chat completions; else the tool of older gateways.
    pub async fn probe(&self) -> Result<GatewayRoute, TurnError> {
        let mut first = None;
        for route in [GatewayRoute::WebSocket, GatewayRoute::Chat, GatewayRoute::SessionsSend] {
            match self.offers(route).await {
                Ok(()) => return Ok(route),
                Err(error) if error.kind == FailureKind::Unreachable => return Err(error),
                // A gateway that speaks another version of its protocol may still offer another route.
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| self.unreachable("no answer")))
    }

    /// Whether the gateway takes turns by this route, with this token.
    pub(super) async fn offers(&self, route: GatewayRoute) -> Result<(), TurnError> {
        let path = match route {
            GatewayRoute::WebSocket => return socket::greet(self).await,
            GatewayRoute::Chat => "/v1/chat/completions",
            GatewayRoute::SessionsSend => "/tools/invoke",
        };
        // An empty request runs nothing: an existing route rejects it, a missing one returns 404.
        let request = self.post(path).json(&json!({})).timeout(CONNECT_TIMEOUT);
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => self.unreachable("no answer in time"),
            false => self.request_error(error, CONNECT_TIMEOUT),
        };
        let status = request.send().await.map_err(failed)?.status();
        let is_missing = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(http_error(status, "")),
            _ if is_missing.contains(&status) => Err(http_error(StatusCode::NOT_FOUND, "")),
            _ => Ok(()),
        }
    }
}
