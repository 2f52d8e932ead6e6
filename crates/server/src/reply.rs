//! Answers in JSON.

use axum::body::Body;
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
    let mut text = Vec::with_capacity(1_024);
    if let Err(error) = serde_json::to_writer(&mut text, document) {
        return Problem::from(OfficeError::internal(error)).into_response();
    }
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
