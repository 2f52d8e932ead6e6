//! What all pages share: the frame around them, their headers, and error pages.

use amb_core::{AgentName, OfficeError, Timestamp};
use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html as HtmlResponse, IntoResponse, Redirect, Response};

use super::session::Visitor;
use crate::request::Problem;

/// Only our own files, no inline script or style, no embedding in frames, forms only to ourselves.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The frame of a page: title, navigation, flash message.
pub(super) struct PageFrame {
    pub(super) title: String,
    /// The name of the current [`NavItem`].
    page: &'static str,
    pub(super) who: AgentName,
    household: bool,
    operator: bool,
    /// Whether operators can read all mail; each page then says so.
    pub(super) mail_is_read: bool,
    pub(super) csrf: String,
    pub(super) flash: Option<Flash>,
    /// The address of a page that answers a form, which a reload must not repeat.
    pub(super) address: Option<String>,
    pub(super) now: Timestamp,
}

/// The message about the result of the last form.
pub(super) struct Flash {
    pub(super) bad: bool,
    pub(super) text: String,
}

/// A page in the navigation.
pub(super) struct NavItem {
    pub(super) name: &'static str,
    pub(super) href: &'static str,
    /// Pressed after `g`, it opens the page.
    pub(super) key: &'static str,
    /// The path of an SVG.
    pub(super) icon: &'static str,
    /// Whether this is the current page.
    pub(super) here: bool,
}

type NavEntry = (&'static str, &'static str, &'static str, &'static str);

const HOUSEHOLD: [NavEntry; 7] = [
    ("Overview", "/dashboard", "o", "M3 9l7-6 7 6v8H12v-5H8v5H3z"),
    ("Conversations", "/dashboard/conversations", "c", "M3 4h14v9H9l-4 4v-4H3z"),
    ("Tasks", "/dashboard/tasks", "t", "M4 5h2M4 10h2M4 15h2M9 5h8M9 10h8M9 15h8"),
    (
        "Network",
        "/dashboard/network",
        "n",
        "M5 7a2 2 0 100-4 2 2 0 000 4zM15 7a2 2 0 100-4 2 2 0 000 4zM10 17a2 2 0 100-4 2 2 0 000 4zM7 5h6M6 7l3 6M14 7l-3 6",
    ),
    ("Agents", "/dashboard/agents", "a", "M10 10a3 3 0 100-6 3 3 0 000 6zM4 17c0-3 3-5 6-5s6 2 6 5"),
    (
        "Groups",
        "/dashboard/groups",
        "g",
        "M7 9a2.5 2.5 0 100-5 2.5 2.5 0 000 5zM14 10a2 2 0 100-4 2 2 0 000 4zM2 16c0-3 2.500-4.500 5-4.500s5 1.500 5 4.500M13 12.500c2.500 0 5 1 5 3.500",
    ),
    ("Connections", "/dashboard/connections", "k", "M8 12l4-4M7 9l-2 2a3 3 0 004 4l2-2M13 11l2-2a3 3 0 00-4-4L9 7"),
];
const HEALTH: NavEntry = ("Health", "/dashboard/health", "h", "M2 10h4l2-5 4 10 2-5h4");
const MAIL: NavEntry = ("All mail", "/dashboard/mail", "m", "M3 5h14v10H3zM3 6l7 5 7-5");

impl PageFrame {
    pub(super) fn new(visitor: &Visitor, page: &'static str, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            page,
            who: visitor.viewer.agent.name.clone(),
            household: visitor.viewer.household.is_some(),
            operator: visitor.viewer.operator,
            mail_is_read: visitor.mail_is_read,
            csrf: visitor.csrf(),
            flash: visitor.flash(),
            address: None,
            now: Timestamp::now(),
        }
    }

    /// The frame of a page that answers a form without a redirect.
    pub(super) fn answering(self, address: impl Into<String>, flash: Option<Flash>) -> Self {
        Self { address: Some(address.into()), flash, ..self }
    }

    /// The pages that this visitor can open.
    pub(super) fn nav(&self) -> Vec<NavItem> {
        let household = self.household.then_some(HOUSEHOLD).into_iter().flatten();
        let mail = (self.operator && self.mail_is_read).then_some(MAIL);
        let pages = household.chain(self.operator.then_some(HEALTH)).chain(mail);
        pages.map(|(name, href, key, icon)| NavItem { name, href, key, icon, here: name == self.page }).collect()
    }
}

/// Renders a page.
pub(super) fn page(template: &impl Template) -> Result<Response, PageError> {
    with_status(StatusCode::OK, template)
}

fn with_status(status: StatusCode, template: &impl Template) -> Result<Response, PageError> {
    let text = template.render().map_err(OfficeError::internal)?;
    let mut response = (status, HtmlResponse(text)).into_response();
    add_headers(&mut response);
    Ok(response)
}

/// Adds the security headers of every response of the dashboard.
pub(super) fn add_headers(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not `no-referrer`: browsers would then send `Origin: null` with our own forms, which is refused.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Redirects to a page, usually after a form.
pub(super) fn redirect(to: &str) -> Response {
    let mut response = Redirect::to(to).into_response();
    add_headers(&mut response);
    response
}

/// A download, which the browser saves and never renders.
pub(super) fn download(name: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    let mut response = text.into_response();
    add_headers(&mut response);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

/// A page without the frame: for visitors who are not signed in, and for errors.
#[derive(Template)]
#[template(path = "gate.html")]
pub(super) struct Gate<'a> {
    pub(super) title: &'a str,
    pub(super) text: &'a str,
    /// A shell command to run.
    pub(super) command: Option<&'a str>,
    /// The URL and text of a link.
    pub(super) link: Option<(&'a str, &'a str)>,
    /// Whether the browser follows the link at once.
    pub(super) at_once: bool,
}

impl Gate<'_> {
    pub(super) fn response(&self, status: StatusCode) -> Response {
        match with_status(status, self) {
            Ok(response) => response,
            Err(_) => status.into_response(),
        }
    }
}

/// An error, rendered as a page.
pub(super) struct PageError(Problem);

impl<E: Into<Problem>> From<E> for PageError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl PageError {
    pub(super) fn not_found(detail: &str) -> Self {
        OfficeError::not_found(detail).into()
    }

    /// Returns how to show the form again, where the visitor can correct it.
    pub(super) fn correctable(self) -> Result<(StatusCode, Flash), Self> {
        match self.0.status() {
            status if status.is_client_error() && status != StatusCode::UNAUTHORIZED => {
                Ok((status, Flash { bad: true, text: self.0.detail().to_owned() }))
            }
            _ => Err(self),
        }
    }
}

/// Any other address below `/dashboard`.
pub(super) async fn no_page(_: Visitor) -> PageError {
    PageError::not_found("there is no such page")
}

/// For example the address of a form, opened as a page.
pub(super) async fn no_method() -> PageError {
    let detail = "this is the address of a form; open its page instead";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into()
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let status = self.0.status();
        let title = match status {
            StatusCode::NOT_FOUND => "There is nothing here",
            StatusCode::UNAUTHORIZED => "Sign in",
            StatusCode::FORBIDDEN => "That is not yours to see",
            StatusCode::TOO_MANY_REQUESTS => "Too often",
            status if status.is_server_error() => "The office failed",
            _ => "That did not work",
        };
        let signed_out = status == StatusCode::UNAUTHORIZED;
        let text = self.0.detail();
        let command = signed_out.then_some("amb dashboard");
        let link = (!signed_out).then_some(("/dashboard", "To the overview"));
        let mut response = Gate { title, text, command, link, at_once: false }.response(status);
        // Passes the cause on to the middleware, which logs it.
        let problem = self.0.into_response();
        response.extensions_mut().extend(problem.extensions().clone());
        if let Some(wait) = problem.headers().get(header::RETRY_AFTER) {
            response.headers_mut().insert(header::RETRY_AFTER, wait.clone());
        }
        response
    }
}
