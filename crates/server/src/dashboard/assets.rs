//! The stylesheet, the script and the icon, at URLs that contain a hash of their content.

use std::sync::OnceLock;

use crate::request::Segment;
use amb_store::KeyHash;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

pub(super) static STYLE: Asset =
    Asset::new("css", "text/css; charset=utf-8", include_str!("../../assets/dashboard.css"));
pub(super) static SCRIPT: Asset =
    Asset::new("js", "text/javascript; charset=utf-8", include_str!("../../assets/dashboard.js"));
pub(super) static ICON: Asset = Asset::new("svg", "image/svg+xml", include_str!("../../assets/icon.svg"));

/// A file embedded in the binary.
pub(super) struct Asset {
    extension: &'static str,
    media_type: &'static str,
    text: &'static str,
    name: OnceLock<String>,
}

impl Asset {
    const fn new(extension: &'static str, media_type: &'static str, text: &'static str) -> Self {
        Self { extension, media_type, text, name: OnceLock::new() }
    }

    /// The file name, with a hash of the content.
    fn name(&self) -> &str {
        self.name.get_or_init(|| {
            let hash = KeyHash::of(self.text).to_hex();
            format!("{}.{}", hash.get(..16).unwrap_or(&hash), self.extension)
        })
    }

    pub(super) fn url(&self) -> String {
        format!("/dashboard/assets/{}", self.name())
    }
}

/// `GET /dashboard/assets/{name}`. The content of a URL never changes.
pub(super) async fn asset(Segment(name): Segment) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.name() == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = asset.text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
