//! Which routes a gateway offers, found out without running anything.

use reqwest::StatusCode;
use serde_json::json;

use super::{CONNECT_TIMEOUT, Gateway, Route, refused, socket};
use crate::runtime::{Trouble, TurnError};

impl Gateway {
    /// The best route that the gateway offers: its own protocol, where a turn that was cut off can be joined again; else
    /// chat completions; else the tool of older gateways.
    pub async fn probe(&self) -> Result<Route, TurnError> {
        let mut first = None;
        for route in [Route::WebSocket, Route::Chat, Route::SessionsSend] {
            match self.offers(route).await {
                Ok(()) => return Ok(route),
                Err(error) if error.trouble == Trouble::Unreachable => return Err(error),
                // A gateway that speaks another version of its protocol may let us in by another route.
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| self.unreachable("no answer")))
    }

    /// Whether the gateway takes turns by this route, with this token.
    pub(super) async fn offers(&self, route: Route) -> Result<(), TurnError> {
        let path = match route {
            Route::WebSocket => return socket::greet(self).await,
            Route::Chat => "/v1/chat/completions",
            Route::SessionsSend => "/tools/invoke",
        };
        // Asks for something that no gateway does: a route that exists complains about the request, one that does not
        // is not found.
        let request = self.post(path).json(&json!({})).timeout(CONNECT_TIMEOUT);
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => self.unreachable("no answer in time"),
            false => self.lost(error, CONNECT_TIMEOUT),
        };
        let status = request.send().await.map_err(failed)?.status();
        let is_missing = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(refused(status, "")),
            _ if is_missing.contains(&status) => Err(refused(StatusCode::NOT_FOUND, "")),
            _ => Ok(()),
        }
    }
}
