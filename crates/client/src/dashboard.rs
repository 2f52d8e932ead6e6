//! The dashboard: pages for people.

use amb_core::mailbox::Result;
use amb_core::{Code, OfficeError, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Client;

/// A link to the dashboard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DashboardLink {
    /// Where to go with a browser. Works once.
    pub url: String,
    /// Until when it works.
    pub expires_at: Timestamp,
}

impl Client {
    /// A link that signs a browser in to the dashboard, once.
    pub async fn dashboard_link(&self) -> Result<DashboardLink> {
        let link: Result<DashboardLink> = self.http.ask(self.http.post(&["dashboard", "links"], &json!({}))?).await;
        link.map_err(|error| match error.code() {
            Code::NotFound => OfficeError::unsupported(format!("{} has no dashboard", self.http.server())),
            _ => error,
        })
    }
}
