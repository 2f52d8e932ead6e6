//! The dashboard: pages for people.

use amb_core::doc::DashboardLink;
use amb_core::mailbox::Result;
use amb_core::{Code, OfficeError};
use serde_json::json;

use crate::Client;

impl Client {
    /// A link that signs a browser in to the dashboard, once.
    pub async fn dashboard_link(&self) -> Result<DashboardLink> {
        let link: Result<DashboardLink> = self.http.fetch(self.http.post(&["dashboard", "links"], &json!({}))?).await;
        link.map_err(|error| match error.code() {
            Code::NotFound => OfficeError::unsupported(format!("{} has no dashboard", self.http.server())),
            _ => error,
        })
    }
}
