//! JSON responses.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use amb_core::OfficeError;
use amb_core::draft::json_len;
use amb_core::limits::MAX_PAGE_BYTES;

use super::problem::Problem;

/// 200 with a JSON document.
pub(crate) struct OkJson<T>(pub(crate) T);

/// 201 with a JSON document.
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

/// Truncates a list to what fits into one response ([`MAX_PAGE_BYTES`]), but keeps at least one item. Returns whether
/// items were dropped.
pub(crate) fn fit_page<T: Serialize>(mut items: Vec<T>) -> (Vec<T>, bool) {
    let (mut left, count) = (MAX_PAGE_BYTES, items.len());
    let fits = |(index, item): &(usize, &T)| {
        let bytes = json_len(*item);
        let fits = bytes <= left || *index == 0;
        left = left.saturating_sub(bytes);
        fits
    };
    let kept = items.iter().enumerate().take_while(fits).count();
    items.truncate(kept);
    (items, kept < count)
}

fn json(status: StatusCode, document: &impl Serialize) -> Response {
    match to_json(document) {
        Ok(json) => json_response(status, json.into()),
        Err(problem) => problem.into_response(),
    }
}

/// Serializes a document.
pub(crate) fn to_json(document: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut json = Vec::with_capacity(1_024);
    serde_json::to_writer(&mut json, document).map_err(OfficeError::internal)?;
    Ok(json)
}

/// A response with JSON that is already serialized.
pub(crate) fn json_response(status: StatusCode, json: Bytes) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_before_the_first_item_that_does_not_fit_and_has_at_least_one() {
        let large = "x".repeat(MAX_PAGE_BYTES / 2);
        assert_eq!(fit_page(vec![large.clone(), String::new()]).0.len(), 2);
        let (kept, cut) = fit_page(vec![large.clone(), large.clone(), String::new()]);
        assert_eq!((kept.len(), cut), (1, true), "the quotes count too");
        let (kept, cut) = fit_page(vec!["x".repeat(2 * MAX_PAGE_BYTES)]);
        assert_eq!((kept.len(), cut), (1, false));
        assert_eq!(fit_page(Vec::<String>::new()), (Vec::new(), false));
    }
}
