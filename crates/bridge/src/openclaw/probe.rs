//! Which routes a gateway offers.

use reqwest::StatusCode;
use serde_json::json;

use super::{CONNECT_TIMEOUT, Gateway, Route};
use crate::runtime::TurnError;

impl Gateway {
    /// The first route that the gateway offers: chat completions, the tool of older gateways, else its own protocol.
    ///
    /// Asks for something that no gateway does, so that nothing is ever run: a route that exists complains about the
    /// request, one that does not is not found.
    pub async fn probe(&self) -> Result<Route, TurnError> {
        for (route, path) in [(Route::Chat, "/v1/chat/completions"), (Route::SessionsSend, "/tools/invoke")] {
            let request = self.post(path).json(&json!({})).timeout(CONNECT_TIMEOUT);
            let status = request.send().await.map_err(|error| self.lost(error))?.status();
            if status == StatusCode::UNAUTHORIZED {
                return Err(super::refused(status, ""));
            }
            let missing = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
            if !missing.contains(&status) && route == Route::Chat {
                return Ok(route);
            }
            if !missing.contains(&status) {
                // Every gateway has this endpoint; the WebSocket is better wherever it lets us in.
                return Ok(match super::socket::greet(self).await {
                    Ok(()) => Route::WebSocket,
                    Err(_) => route,
                });
            }
        }
        super::socket::greet(self).await.map(|()| Route::WebSocket)
    }
}
