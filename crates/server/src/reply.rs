//! Answers in JSON.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use amb_core::OfficeError;

use crate::problem::Problem;

/// 200 with a document.
pub(crate) struct Found<T>(pub(crate) T);

/// 201 with a document.
pub(crate) struct Created<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Found<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json(StatusCode::CREATED, &self.0)
    }
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
