//! Maps the server's problem JSON to [`OfficeError`].

use std::time::Duration;

use amb_core::doc::ProblemBody;
use amb_core::{Code, OfficeError};
use reqwest::StatusCode;

/// The error of a response that is no success.
pub(crate) fn problem(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> OfficeError {
    let problem: ProblemBody = serde_json::from_slice(body).unwrap_or_default();
    let code = serde_json::from_value(problem.code.into()).unwrap_or_else(|_| code_of(status));
    let detail = Some(problem.detail).filter(|detail| !detail.is_empty());
    let detail = detail.map_or_else(|| format!("the server answered {status}"), plain);
    let error = OfficeError::new(code, detail);
    match retry_after {
        Some(wait) => error.retry_after(wait),
        None => error,
    }
}

/// Strips `body.`, `query.` or `path.` from a field's name: the caller of a verb does not know where it was sent.
fn plain(detail: String) -> String {
    let place = ["body.", "query.", "path."].iter().find_map(|place| detail.strip_prefix(place));
    // Only before a field's name, which a colon ends.
    let field = place.filter(|rest| rest.split(' ').next().is_some_and(|word| word.ends_with(':')));
    field.map_or_else(|| detail.clone(), str::to_owned)
}

/// The code of a response without a known one, such as that of a proxy.
fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 | 422 => Code::Invalid,
        401 => Code::Unauthorized,
        403 => Code::Forbidden,
        404 => Code::NotFound,
        409 => Code::Conflict,
        410 => Code::Gone,
        413 => Code::TooLarge,
        429 => Code::TooManyRequests,
        501 => Code::Unsupported,
        502..=504 => Code::Unavailable,
        507 => Code::OverQuota,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_detail_is_kept_and_a_proxys_status_is_mapped() {
        let body = br#"{"status":403,"code":"not_connected","detail":"ask for a connection first"}"#;
        let error = problem(StatusCode::FORBIDDEN, None, body);
        assert_eq!((error.code(), error.detail()), (Code::NotConnected, "ask for a connection first"));
        let body = br#"{"status":507,"code":"over_quota","detail":"ask its operator"}"#;
        let full = problem(StatusCode::INSUFFICIENT_STORAGE, None, body);
        assert_eq!((full.code(), full.is_transient()), (Code::OverQuota, false));
        let body = br#"{"status":403,"code":"registration_token_needed","detail":"give the token"}"#;
        let error = problem(StatusCode::FORBIDDEN, None, body);
        assert_eq!((error.code(), error.detail()), (Code::Forbidden, "give the token"));
        let body = br#"{"status":422,"code":"invalid","detail":"path.session_id: must be a UUID"}"#;
        assert_eq!(problem(StatusCode::UNPROCESSABLE_ENTITY, None, body).detail(), "session_id: must be a UUID");
        assert_eq!(problem(StatusCode::BAD_GATEWAY, None, b"<html>").code(), Code::Unavailable);
        let later = problem(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(3)), b"");
        assert_eq!((later.code(), later.wait()), (Code::TooManyRequests, Some(Duration::from_secs(3))));
    }
}
