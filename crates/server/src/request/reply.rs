//! Answers in JSON.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use amb_core::OfficeError;
use amb_core::draft::json_len;
use amb_core::limits::MAX_PAGE_BYTES;

use crate::problem::Problem;

/// 200 with a document.
pub(crate) struct OkJson<T>(pub(crate) T);

/// 201 with a document.
pub(crate) struct Created<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for OkJson<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json(StatusCode::CREATED, &self.0)
    }
}

/// Keeps as many items as fit into a response, at least one. Returns whether some were left out.
pub(crate) fn fitting<T: Serialize>(mut things: Vec<T>) -> (Vec<T>, bool) {
    let (mut left, count) = (MAX_PAGE_BYTES, things.len());
    let fits = |(index, thing): &(usize, &T)| {
        let bytes = json_len(*thing);
        let fits = bytes <= left || *index == 0;
        left = left.saturating_sub(bytes);
        fits
    };
    let fit = things.iter().enumerate().take_while(fits).count();
    things.truncate(fit);
    (things, fit < count)
}

/// A document with this status.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    match json_text(document) {
        Ok(text) => json_response(status, text.into()),
        Err(error) => Problem::from(OfficeError::internal(error)).into_response(),
    }
}

/// A document as text.
pub(crate) fn json_text(document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(1_024);
    serde_json::to_writer(&mut text, document)?;
    Ok(text)
}

/// A text that is a document, with this status.
pub(crate) fn json_response(status: StatusCode, text: Bytes) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_at_the_first_thing_that_does_not_fit_and_has_one_at_least() {
        let large = "x".repeat(MAX_PAGE_BYTES / 2);
        assert_eq!(fitting(vec![large.clone(), String::new()]).0.len(), 2);
        let (kept, cut) = fitting(vec![large.clone(), large.clone(), String::new()]);
        assert_eq!((kept.len(), cut), (1, true), "quotes count, too");
        let (kept, cut) = fitting(vec!["x".repeat(2 * MAX_PAGE_BYTES)]);
        assert_eq!((kept.len(), cut), (1, false));
        assert_eq!(fitting(Vec::<String>::new()), (Vec::new(), false));
    }
}
