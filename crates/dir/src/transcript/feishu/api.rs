//! The two requests: a token, and a page of messages.

use std::time::Duration;

use amb_core::{Code, OfficeError};
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::FeishuHistory;
use super::retry::{Retries, rate_limited, requested_wait};

/// Timeout of one request, including its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest response that is read: 50 messages of the largest kind are well below it.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// Rate-limit codes of the gateway and of the message service.
const RATE_LIMITED: [i64; 2] = [99_991_400, 230_020];
/// Codes for missing, invalid or expired tokens of every kind.
const TOKEN_REFUSED: [i64; 6] = [99_991_661, 99_991_663, 99_991_664, 99_991_668, 99_991_671, 99_991_677];

/// A page of the message list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeishuPage {
    pub(super) items: Vec<serde_json::Value>,
    pub(super) has_more: bool,
    pub(super) page_token: Option<String>,
}

/// A message of the list: the fields that a transcript needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeishuMessage {
    pub(super) message_id: String,
    pub(super) msg_type: String,
    /// Milliseconds since 1970, as text.
    pub(super) create_time: String,
    pub(super) deleted: bool,
    pub(super) sender: FeishuSender,
    pub(super) body: FeishuBody,
    pub(super) mentions: Vec<Mention>,
}

/// Sender of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeishuSender {
    pub(super) id: String,
    pub(super) sender_type: String,
}

/// Content of a message: JSON as text, in a shape that depends on the type.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeishuBody {
    pub(super) content: String,
}

/// The name behind `@_user_1` in a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Mention {
    pub(super) key: String,
    pub(super) name: String,
}

/// The fields of every response. Failures may have status 200, so the code decides.
#[derive(Debug, Deserialize)]
struct FeishuStatus {
    code: i64,
    #[serde(default)]
    msg: String,
}

#[derive(Deserialize)]
struct FeishuData<T> {
    data: T,
}

#[derive(Deserialize)]
struct NewToken {
    tenant_access_token: String,
    expire: u64,
}

/// A response that needs no retry of the same request.
enum FeishuResponse {
    Good(Vec<u8>),
    TokenRefused,
}

impl FeishuHistory {
    /// Returns one page of a chat's messages, newest first.
    pub(super) async fn messages(
        &self,
        chat_id: &str,
        size: usize,
        page: Option<&str>,
    ) -> Result<FeishuPage, OfficeError> {
        let url = format!("{}/open-apis/im/v1/messages", self.base);
        let size = size.to_string();
        let mut query = vec![
            ("container_id_type", "chat"),
            ("container_id", chat_id),
            ("sort_type", "ByCreateTimeDesc"),
            ("page_size", size.as_str()),
        ];
        query.extend(page.map(|token| ("page_token", token)));
        let url = reqwest::Url::parse_with_params(&url, query).map_err(|_| bad_base())?;
        // Twice: a token may expire or be revoked between fetch and use.
        for _ in 0..2 {
            let token = self.token.get(async || self.fetch_token().await).await?;
            match self.request(|| self.http.get(url.clone()).bearer_auth(&token)).await? {
                FeishuResponse::Good(bytes) => return Ok(parse::<FeishuData<FeishuPage>>(&bytes)?.data),
                FeishuResponse::TokenRefused => self.token.invalidate(&token).await,
            }
        }
        Err(OfficeError::new(
            Code::Unauthorized,
            "Feishu refuses a token it has just given; see the app's id and rights",
        ))
    }

    async fn fetch_token(&self) -> Result<(String, u64), OfficeError> {
        let url = format!("{}/open-apis/auth/v3/tenant_access_token/internal", self.base);
        let url = reqwest::Url::parse(&url).map_err(|_| bad_base())?;
        let body = json!({"app_id": self.app.app_id, "app_secret": self.app.app_secret});
        match self.request(|| self.http.post(url.clone()).json(&body)).await? {
            FeishuResponse::Good(bytes) => {
                parse::<NewToken>(&bytes).map(|token| (token.tenant_access_token, token.expire))
            }
            FeishuResponse::TokenRefused => {
                Err(OfficeError::new(Code::Unauthorized, "Feishu refuses the app; see its id and secret"))
            }
        }
    }

    /// Sends a request, with retries within the policy.
    async fn request(&self, request: impl Fn() -> RequestBuilder) -> Result<FeishuResponse, OfficeError> {
        let mut retries = Retries::new(self.policy);
        loop {
            let (status, wait, bytes) = match exchange(request()).await {
                Ok(response) => response,
                Err(cause) => {
                    retries.wait(None, unreachable(cause)).await?;
                    continue;
                }
            };
            match serde_json::from_slice::<FeishuStatus>(&bytes).ok() {
                _ if status == StatusCode::TOO_MANY_REQUESTS => retries.wait(wait, rate_limited()).await?,
                Some(body) if RATE_LIMITED.contains(&body.code) => retries.wait(wait, rate_limited()).await?,
                Some(body) if TOKEN_REFUSED.contains(&body.code) => return Ok(FeishuResponse::TokenRefused),
                _ if status.is_server_error() => {
                    retries.wait(wait, unreachable(format!("Feishu answered {status}").into())).await?;
                }
                Some(FeishuStatus { code: 0, .. }) if status.is_success() => return Ok(FeishuResponse::Good(bytes)),
                Some(body) => return Err(refused(status, &body)),
                None => return Err(not_feishu(format!("an answer of status {status} without a code"))),
            }
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends one request and reads its response: status, requested wait, body.
async fn exchange(request: RequestBuilder) -> Result<(StatusCode, Option<Duration>, Vec<u8>), BoxError> {
    let mut response = request.timeout(REQUEST_TIMEOUT).send().await.map_err(reqwest::Error::without_url)?;
    let (status, wait) = (response.status(), requested_wait(response.headers()));
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err("the answer is too large".into());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((status, wait, bytes))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, OfficeError> {
    serde_json::from_slice(bytes).map_err(|error| not_feishu(error.to_string()))
}

fn refused(status: StatusCode, body: &FeishuStatus) -> OfficeError {
    let code = match status {
        StatusCode::FORBIDDEN => Code::Forbidden,
        StatusCode::NOT_FOUND => Code::NotFound,
        _ => Code::Unavailable,
    };
    // Their message, shortened: it names the missing right or the bad id.
    let said: String = body.msg.chars().filter(|c| !c.is_control()).take(200).collect();
    OfficeError::new(code, format!("Feishu refuses with code {}: {said}", body.code))
}

fn unreachable(cause: BoxError) -> OfficeError {
    OfficeError::unavailable("Feishu cannot be reached or fails; try again later").caused_by(cause)
}

fn not_feishu(cause: String) -> OfficeError {
    OfficeError::unavailable("the answer is not one of Feishu's; see the base URL").caused_by(cause)
}

fn bad_base() -> OfficeError {
    OfficeError::invalid("the base URL of Feishu is not a URL, such as https://open.feishu.cn")
}
