//! The history of a Feishu (Lark) group, from the service's message list.
//!
//! Follows the public reference of the open platform (`auth/v3/tenant_access_token/internal`, `im/v1/messages`, the
//! pages on error codes and rate limits). Tested against a fake server that implements that reference, not against the
//! service itself. The app must be in the group and have the right to read its messages.

mod api;
mod content;
mod retry;
mod token;

use std::collections::HashSet;
use std::fmt;

use amb_core::OfficeError;
use amb_core::transcript::{Line, TranscriptKey};
use async_trait::async_trait;

use self::api::FeishuMessage;
pub use self::retry::RetryPolicy;
use self::token::TokenCell;
use super::HistorySource;

/// The service in China; elsewhere it is `https://open.larksuite.com`.
pub const FEISHU: &str = "https://open.feishu.cn";
/// Largest page that the service returns.
const MAX_PAGE: usize = 50;
/// Extra pages, since recalled messages are left out.
const SPARE_PAGES: usize = 10;

/// Credentials of an app.
#[derive(Clone)]
pub struct FeishuApp {
    /// The id of the app, `cli_…`.
    pub app_id: String,
    /// Its secret, never shown in debug output.
    pub app_secret: String,
}

impl fmt::Debug for FeishuApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("app_id", &self.app_id).finish_non_exhaustive()
    }
}

/// History for keys `feishu:CHAT_ID` and `lark:CHAT_ID`.
#[derive(Debug)]
pub struct FeishuHistory {
    http: reqwest::Client,
    base: String,
    app: FeishuApp,
    token: TokenCell,
    policy: RetryPolicy,
}

impl FeishuHistory {
    /// Uses the service at `base_url` (usually [`FEISHU`]) as `app`, with an HTTP client of these settings. It follows
    /// no redirects, so that the app's secret is sent to the service alone.
    ///
    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn new(http: reqwest::ClientBuilder, base_url: &str, app: FeishuApp) -> Result<Self, OfficeError> {
        let http = http.redirect(reqwest::redirect::Policy::none()).build().map_err(OfficeError::internal)?;
        let base = base_url.trim_end_matches('/').to_owned();
        Ok(Self { http, base, app, token: TokenCell::default(), policy: RetryPolicy::default() })
    }

    /// Replaces [`RetryPolicy::default`].
    pub fn with_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Returns the last `limit` messages of a chat, oldest first.
    pub async fn chat(&self, chat_id: &str, limit: usize) -> Result<Vec<Line>, OfficeError> {
        let mut lines = Vec::new();
        let mut ids = HashSet::new();
        let mut page_token: Option<String> = None;
        // The same for each page: a page token is valid only for the request it came from.
        let size = limit.min(MAX_PAGE);
        for _ in 0..limit.div_ceil(MAX_PAGE) + SPARE_PAGES {
            if lines.len() >= limit {
                break;
            }
            let page = self.messages(chat_id, size, page_token.as_deref()).await?;
            let items = page.items.into_iter().filter_map(item);
            lines.extend(
                items.filter(|item| item.message_id.is_empty() || ids.insert(item.message_id.clone())).filter_map(line),
            );
            let next = page.page_token.filter(|token| page.has_more && !token.is_empty());
            if next.is_none() || next == page_token {
                break;
            }
            page_token = next;
        }
        lines.truncate(limit);
        // The service was asked for the newest first.
        lines.reverse();
        lines.sort_by(|one, other| one.ts.unwrap_or_default().total_cmp(&other.ts.unwrap_or_default()));
        Ok(lines)
    }
}

#[async_trait]
impl HistorySource for FeishuHistory {
    async fn recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError> {
        self.chat(chat_id(key)?, limit).await
    }
}

/// Returns the chat id in a key.
fn chat_id(key: &TranscriptKey) -> Result<&str, OfficeError> {
    let id = key.as_str().strip_prefix("feishu:").or_else(|| key.as_str().strip_prefix("lark:"));
    let plain = |id: &&str| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    id.filter(plain).ok_or_else(|| {
        OfficeError::invalid(format!(
            "{key} is no Feishu chat; its history is asked for as feishu:CHAT_ID, feishu:oc_123"
        ))
    })
}

/// Parses a message. One of an unknown shape is left out, not its whole page.
fn item(value: serde_json::Value) -> Option<FeishuMessage> {
    let item = serde_json::from_value(value);
    item.inspect_err(|error| tracing::warn!(%error, "left out a Feishu message of an unknown shape")).ok()
}

/// Converts a message to a transcript line; `None` if it was recalled.
fn line(item: FeishuMessage) -> Option<Line> {
    if item.deleted {
        return None;
    }
    let role = if item.sender.sender_type == "app" { "assistant" } else { "user" };
    Some(Line {
        role: role.to_owned(),
        content: content::text(&item.msg_type, &item.body.content, &item.mentions),
        sender: item.sender.id,
        author: None,
        message_id: Some(item.message_id).filter(|id| !id.is_empty()),
        ts: item.create_time.parse().ok().filter(|ts: &f64| ts.is_finite()),
    })
}
