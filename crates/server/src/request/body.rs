//! Request bodies: JSON objects of bounded size.

use std::pin::pin;
use std::time::Duration;

use amb_core::OfficeError;
use axum::body::{Body as RawBody, BodyDataStream, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use futures_util::future::poll_immediate;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::caller::KeyInUse;
use super::problem::Problem;
use crate::app::App;

/// A body that is too large is drained up to this multiple of the limit, so that the client gets to read the response.
const DRAIN_FACTOR: usize = 16;
/// And for this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Extracts the JSON object in the body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        check_type(request.headers(), request.body())?;
        let key = request.extensions().get::<KeyInUse>().copied();
        let mut read = pin!(read(request.into_body(), app.config.body_limit));
        let bytes = match poll_immediate(&mut read).await {
            Some(bytes) => bytes?,
            None => {
                let bytes = tokio::time::timeout(app.config.header_timeout, read).await.map_err(|_| {
                    let detail = "the body did not arrive in time; send it again";
                    Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail)
                })??;
                // The key was checked when the head arrived, and may have ended since.
                if let Some(key) = key {
                    key.check(app).await?;
                }
                bytes
            }
        };
        parse(&bytes).map(Self)
    }
}

/// Requires a JSON content type: a web page cannot send one without a CORS preflight.
fn check_type(headers: &HeaderMap, body: &RawBody) -> Result<(), Problem> {
    let value = match headers.get(header::CONTENT_TYPE) {
        // An empty body needs no type; parsing reports what is missing.
        None if body.is_end_stream() => return Ok(()),
        None => "",
        Some(value) => value.to_str().unwrap_or_default(),
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    let has_json_suffix = || {
        essence.rsplit_once('+').is_some_and(|(kind, suffix)| !kind.is_empty() && suffix.eq_ignore_ascii_case("json"))
    };
    if essence.eq_ignore_ascii_case("application/json") || has_json_suffix() {
        return Ok(());
    }
    let detail = "send the body with Content-Type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

async fn read(body: RawBody, limit: usize) -> Result<Bytes, Problem> {
    let expected = body.size_hint().lower();
    let mut frames = body.into_data_stream();
    if expected <= limit as u64
        && let Some(bytes) = collect(&mut frames, expected, limit).await?
    {
        return Ok(bytes);
    }
    let most = limit.saturating_mul(DRAIN_FACTOR);
    if expected <= most as u64 {
        // How it ends does not matter: the response is the same.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(frames, most)).await;
    }
    Err(OfficeError::too_large(format!("the body has more than {limit} bytes")).into())
}

/// Collects the whole body; `None` once it has more bytes than the limit.
async fn collect(frames: &mut BodyDataStream, expected: u64, limit: usize) -> Result<Option<Bytes>, Problem> {
    // Most bodies are one frame, which is returned without a copy; `whole` is filled from the second frame on.
    let mut first = Bytes::new();
    let mut whole: Vec<u8> = Vec::new();
    let mut size = 0_usize;
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|_| Problem::malformed("the body broke off; send it again"))?;
        size = size.saturating_add(frame.len());
        if size > limit {
            return Ok(None);
        }
        if size == frame.len() {
            first = frame;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(usize::try_from(expected).unwrap_or(0).clamp(size, limit));
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&frame);
    }
    Ok(Some(if whole.is_empty() { first } else { whole.into() }))
}

/// Reads up to so many bytes and discards them.
async fn drain(mut frames: BodyDataStream, most: usize) {
    let mut size = 0;
    while size < most
        && let Some(Ok(frame)) = frames.next().await
    {
        size += frame.len();
    }
}

/// Parses a JSON object. Fails with 400 `malformed` where the text is not JSON, with 422 `invalid` where it has another
/// shape.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::malformed("the body is not valid UTF-8"))?;
    // Nothing is sent where every field is optional.
    if text.is_empty()
        && let Ok(defaults) = serde_json::from_str("{}")
    {
        return Ok(defaults);
    }
    // Also refuses arrays, which serde would read as structs by position.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Err(Problem::field("body", "must be a JSON object")),
            Err(error) => Err(Problem::malformed(format!("the body is not JSON: {error}"))),
        };
    }
    serde_json::from_str(text).map_err(|_| explain::<T>(text))
}

/// Explains why a text did not parse, by parsing it again with paths.
fn explain<T: DeserializeOwned>(text: &str) -> Problem {
    // A wrong type early on hides a syntax error after it.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Problem::malformed(format!("the body is not JSON: {error}"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Ok(_) => Problem::malformed("the body is more than one JSON value"),
        // For example a lone surrogate, which `IgnoredAny` skips but which is not valid text.
        Err(error) if !error.inner().is_data() => {
            Problem::malformed(format!("the body is not JSON: {}", error.inner()))
        }
        Err(error) => {
            let path = error.path().to_string();
            let mut field = if path == "." { "body".to_owned() } else { format!("body.{path}") };
            let detail = error.inner().to_string();
            // Drops the position in the text, which depends on white space.
            let detail = detail.split(" at line ").next().unwrap_or_default().to_owned();
            let missing = detail.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
            if let Some(missing) = missing {
                field = format!("{field}.{missing}");
            }
            Problem::field(field, detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Pair {
        a: u8,
        b: String,
    }

    fn status(text: &str) -> u16 {
        parse::<Pair>(text.as_bytes()).unwrap_err().status().as_u16()
    }

    #[test]
    fn bad_json_is_malformed_and_json_of_another_shape_is_invalid() {
        assert_eq!(parse::<Pair>(br#" {"a":1,"b":"x","c":[]}"#).unwrap(), Pair { a: 1, b: "x".into() });
        for malformed in ["", "{", "{\"a\":1,", "nope", "{\"a\":\"x\",}", "{\"a\":1}}", r#"{"a":1,"b":"\ud800"}"#] {
            assert_eq!(status(malformed), 400, "{malformed}");
        }
        for invalid in ["[1,\"x\"]", "1", "null", "{}", "{\"a\":\"x\",\"b\":\"\"}"] {
            assert_eq!(status(invalid), 422, "{invalid}");
        }
        assert_eq!(parse::<Pair>(b"{\"a\":1,\"b\":\"\xff\"}").unwrap_err().status().as_u16(), 400);
        assert_eq!(status(&format!("{{\"a\":{}", "[".repeat(100_000))), 400, "deep nesting ends early");
    }

    #[test]
    fn an_empty_body_is_an_object_without_fields() {
        assert_eq!(parse::<amb_core::doc::RotateBody>(b"").unwrap().grace_seconds, None);
        assert_eq!(parse::<amb_core::doc::RotateBody>(b" ").unwrap_err().status().as_u16(), 400);
        assert_eq!(parse::<amb_core::doc::StateBody>(b"").unwrap_err().status().as_u16(), 400);
    }

    #[test]
    fn a_field_out_of_bounds_is_named() {
        let ids = vec![uuid::Uuid::nil(); 1_001];
        let body = serde_json::json!({ "message_ids": ids }).to_string();
        let problem = parse::<amb_core::doc::IdsBody>(body.as_bytes()).unwrap_err();
        assert_eq!((problem.status().as_u16(), problem.detail()), (422, "body.message_ids: has at most 1000 ids"));
    }
}
