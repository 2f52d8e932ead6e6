//! Errors in responses: RFC 9457 problem JSON with a stable code. Every error is mapped to its status here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::{FieldError, ProblemBody};
use amb_core::{Code, OfficeError};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::reply::json_response;
use crate::rate::whole_seconds;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error response.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: Cow<'static, str>,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
    cause: Option<Cause>,
}

/// The internal cause of a 5xx: a response extension that the middleware logs.
#[derive(Debug, Clone)]
pub(crate) struct Cause(pub(crate) Arc<OfficeError>);

impl Problem {
    /// An error of the HTTP layer, which has no [`Code`].
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code: code.into(), detail: detail.into(), errors: Vec::new(), retry_after: None, cause: None }
    }

    /// A field that is missing, malformed or out of bounds.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError::new(field, detail).into()
    }

    /// A body that cannot be read as JSON at all.
    pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden | Code::OldKey | Code::NotConnected | Code::NotAllowed => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Conflict | Code::LoopRefused | Code::IllegalMove => StatusCode::CONFLICT,
        Code::Gone => StatusCode::GONE,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        Code::OverQuota => StatusCode::INSUFFICIENT_STORAGE,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        let detail = format!("{}: {}", error.field, error.detail);
        Self { errors: vec![error], ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
    }
}

impl From<OfficeError> for Problem {
    fn from(error: OfficeError) -> Self {
        let status = status_of(error.code());
        let detail = match error.code() {
            // The details are logged, not sent.
            Code::Internal => Cow::Borrowed("the office failed inside; its log says how"),
            _ => Cow::Owned(error.detail().to_owned()),
        };
        Self {
            status,
            code: Cow::Borrowed(error.code().as_str()),
            detail,
            errors: Vec::new(),
            retry_after: error.wait(),
            cause: status.is_server_error().then(|| Cause(Arc::new(error))),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let body = ProblemBody {
            kind: format!("urn:amb:problem:{}", self.code),
            title: title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.into_owned(),
            code: self.code.into_owned(),
            errors: self.errors,
        };
        // Serialization fails only for maps with keys that are not strings.
        let json = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = json_response(self.status, json.into());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        let wait = match (self.retry_after, self.status) {
            (Some(wait), _) => Some(wait),
            (None, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => Some(Duration::from_secs(1)),
            _ => None,
        };
        if let Some(wait) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"agent mailbox\""));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_error_does_not_leak_its_details() {
        let problem = Problem::from(OfficeError::internal("password=hunter2"));
        assert_eq!(problem.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!problem.detail.contains("hunter2"));
        assert!(problem.cause.is_some(), "it is still logged");
    }

    #[test]
    fn a_rate_limit_error_has_retry_after_in_whole_seconds() {
        let wait = Duration::from_millis(1_500);
        let error = OfficeError::new(Code::TooManyRequests, "too often").retry_after(wait);
        let response = Problem::from(error).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
