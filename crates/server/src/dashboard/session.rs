//! Signing in: a link that works once, then a cookie.
//!
//! Both secrets are random, stored as SHA-256, and expire. A session also ends with the key that its link was made
//! with.

use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{KeyHash, SignIn, Viewer};
use axum::extract::{Form, FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use subtle::ConstantTimeEq;

use super::frame::{Flash, Gate, PageError, redirect};
use crate::app::App;
use crate::request::{ClientAddress, Params, Problem, is_secret, new_secret};

/// How long a link is valid.
pub(crate) const LINK_TTL: Duration = Duration::from_secs(5 * 60);
/// How long a browser stays signed in.
const SESSION_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Returns the origin under which the caller reaches this office.
pub(crate) fn origin(app: &App, headers: &HeaderMap) -> Result<String, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(host) = text("host") else {
        return Err(Problem::field("header.Host", "is missing, and without it there is no address to link to"));
    };
    Ok(format!("{}://{host}", if is_https(app, headers) { "https" } else { "http" }))
}

fn is_https(app: &App, headers: &HeaderMap) -> bool {
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    app.config.tls.is_some() || (app.config.trust_forwarded_for && forwarded == Some("https"))
}

/// The name of the cookie. It has the port, because browsers share cookies between the ports of a host.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
    format!("amb_dashboard_{}", port.unwrap_or("0"))
}

fn cookie_in(headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn set_cookie(app: &App, headers: &HeaderMap, value: &str, seconds: u64) -> Option<HeaderValue> {
    let secure = if is_https(app, headers) { "; Secure" } else { "" };
    let name = cookie_name(headers);
    let text = format!("{name}={value}; Path=/dashboard; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).ok()
}

/// The person or operator who is signed in.
pub(super) struct Visitor {
    pub(super) viewer: Viewer,
    /// The key that this browser's link was made with.
    pub(super) key: KeyHash,
    /// The value of the cookie.
    secret: String,
    /// Whether operators can read all mail.
    pub(super) mail_is_read: bool,
    /// From the query: the last action, for the flash message.
    done: Option<String>,
}

#[derive(Deserialize)]
struct DoneQuery {
    done: Option<String>,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, PageError> {
        let now = Timestamp::now();
        let Some(secret) = cookie_in(&parts.headers).filter(|secret| is_secret(secret)) else {
            return Err(signed_out());
        };
        let Some(browser) = app.store.browser(KeyHash::of(secret), now).await? else { return Err(signed_out()) };
        let agent = app.store.agent_by_key_hash(browser.key, now).await?.filter(|agent| agent.key == browser.agent);
        let Some(agent) = agent else { return Err(signed_out()) };
        app.limits.agent(agent.key)?;
        app.heartbeats.record(agent.key);
        let mut viewer = app.store.viewer(&agent).await?;
        viewer.operator |= viewer.first_household && app.config.owner_is_operator;
        if viewer.household.is_none() && !viewer.operator {
            return Err(signed_out());
        }
        let done = axum::extract::Query::<DoneQuery>::try_from_uri(&parts.uri).ok().and_then(|query| query.0.done);
        let mail_is_read = app.config.operators_read_mail;
        Ok(Self { viewer, key: browser.key, secret: secret.to_owned(), mail_is_read, done })
    }
}

fn signed_out() -> PageError {
    let detail = "You are not signed in, or no longer. Run this where your agents run, and open the link it prints:";
    OfficeError::new(Code::Unauthorized, detail).into()
}

impl Visitor {
    /// Identifies the browser in the store.
    pub(super) fn browser(&self) -> KeyHash {
        KeyHash::of(&self.secret)
    }

    /// The CSRF token of this browser's forms.
    pub(super) fn csrf(&self) -> String {
        KeyHash::of(&format!("amb dashboard form\0{}", self.secret)).to_hex()
    }

    /// The household of the visitor. Fails for an operator without one.
    pub(super) fn household(&self) -> Result<amb_store::HouseholdKey, PageError> {
        let detail = "this page shows a household, and you are the operator of the office; see its health instead";
        self.viewer.household.ok_or_else(|| OfficeError::new(Code::Forbidden, detail).into())
    }

    /// The message about the last action.
    pub(super) fn flash(&self) -> Option<Flash> {
        let text = match self.done.as_deref()? {
            "sent" => "Sent.",
            "approved" => "Approved: they are connected now.",
            "rejected" => "Rejected.",
            "blocked" => "Blocked: nothing passes between them.",
            "unblocked" => "Unblocked.",
            "revoked" => "Revoked: they are no longer connected.",
            "asked" => {
                "Asked. Give the other side the code below: when they approve the request with it, the two are connected."
            }
            "paused" => "Paused: its mail is accepted, and waits until you resume it.",
            "resumed" => "Resumed: what waited is there now.",
            "ended" => "Ended: what is sent in it from now on is refused.",
            "canceled" => "Canceled. Both sides are told that it was you.",
            "kept" => "It has this task already: nothing has changed.",
            "reassigned" => "Given to another agent, as new mail. The one before is told to stop.",
            _ => return None,
        };
        Some(Flash { bad: false, text: text.to_owned() })
    }
}

/// Extracts a form, after checking its CSRF token.
pub(super) struct Posted<T>(pub(super) Visitor, pub(super) T);

#[derive(Deserialize)]
struct WithToken<T> {
    #[serde(default)]
    csrf: String,
    #[serde(flatten)]
    form: T,
}

impl<T: DeserializeOwned + Send> FromRequest<App> for Posted<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, app: &App) -> Result<Self, PageError> {
        let (mut parts, body) = request.into_parts();
        let read = Form::<WithToken<T>>::from_request(Request::from_parts(parts.clone(), body), app);
        let Ok(read) = tokio::time::timeout(app.config.header_timeout, read).await else {
            let detail = "the form did not arrive in time; send it again";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail).into());
        };
        let Form(WithToken { csrf, form }) = read
            .map_err(|bad| Problem::new(bad.status(), "malformed", "the form cannot be read; open its page again"))?;
        // After the form has arrived: the browser may have been signed out since its head did.
        let visitor = Visitor::from_request_parts(&mut parts, app).await?;
        match csrf.as_bytes().ct_eq(visitor.csrf().as_bytes()).into() {
            true => Ok(Self(visitor, form)),
            false => {
                let detail = "this form is not of your session; open its page again and send it from there";
                Err(OfficeError::new(Code::Forbidden, detail).into())
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct LinkQuery {
    #[serde(default)]
    link: String,
}

/// `GET /dashboard/sign-in?link=…`: uses the link up.
///
/// Returns a page that forwards to the dashboard, not a redirect: after a click on another site, the browser would
/// follow a redirect without the new cookie.
pub(super) async fn sign_in(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    Params(query): Params<LinkQuery>,
) -> Result<Response, PageError> {
    let now = Timestamp::now();
    let secret = new_secret()?;
    let until = now.saturating_add(SESSION_TTL).unwrap_or(now);
    let browser = SignIn { hash: KeyHash::of(&secret), until };
    let used = is_secret(&query.link) && app.store.use_link(KeyHash::of(&query.link), browser, now).await?;
    if !used {
        app.limits.wrong_key(address).await?;
        let text = "This link was used before, perhaps by a program that previews links, or is older than five \
                    minutes. Get a new one:";
        let gate =
            Gate { title: "The link is used up", text, command: Some("amb dashboard"), link: None, at_once: false };
        return Ok(gate.response(StatusCode::GONE));
    }
    let (title, link) = ("You are signed in", Some(("/dashboard", "Go on to the dashboard")));
    let gate = Gate { title, text: "This browser stays signed in for a week.", command: None, link, at_once: true };
    let mut response = gate.response(StatusCode::OK);
    if let Some(cookie) = set_cookie(&app, &headers, &secret, SESSION_TTL.as_secs()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// A form without fields of its own.
#[derive(Deserialize)]
pub(super) struct NoFields {}

/// `POST /dashboard/sign-out`.
pub(super) async fn sign_out(
    State(app): State<App>,
    headers: HeaderMap,
    Posted(visitor, NoFields {}): Posted<NoFields>,
) -> Result<Response, PageError> {
    app.store.sign_out(visitor.browser()).await?;
    // The streams of its pages, which look whether their browser is still signed in.
    app.hub.wake(visitor.viewer.agent.key);
    let mut response = redirect("/dashboard");
    if let Some(cookie) = set_cookie(&app, &headers, "", 0) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
