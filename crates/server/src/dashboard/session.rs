//! Signing in: a link that works once, then a cookie.
//!
//! Both secrets are random, stored as SHA-256, and end by themselves. A browser stays signed in as long as the key does with
//! which its link was made: when the person's key ends, so does every browser.

use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{KeyHash, SignIn, Viewer};
use axum::extract::{Form, FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use subtle::ConstantTimeEq;

use super::frame::{Flash, Gate, PageError, onward};
use crate::app::App;
use crate::caller::ClientAddress;
use crate::key::{is_secret, secret};
use crate::problem::Problem;
use crate::query::Params;

/// How long a link can be used.
pub(crate) const LINK_TIME: Duration = Duration::from_secs(5 * 60);
/// How long a browser stays signed in.
const BROWSER_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The address under which the caller reaches this office.
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

/// The name of the cookie. Browsers share cookies between the ports of a host, and two offices may run on one machine.
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

/// The person or operator who looks at a page.
pub(super) struct Visitor {
    pub(super) viewer: Viewer,
    /// The key that this browser's link was made with.
    pub(super) key: KeyHash,
    secret: String,
    /// Whether operators read all mail here.
    pub(super) mail_is_read: bool,
    /// From the query: which action was done last.
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
        app.heartbeats.note(agent.key);
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
    /// The browser, as the store knows it.
    pub(super) fn browser(&self) -> KeyHash {
        KeyHash::of(&self.secret)
    }

    /// The token that forms of this browser carry.
    pub(super) fn csrf(&self) -> String {
        KeyHash::of(&format!("amb dashboard form\0{}", self.secret)).to_hex()
    }

    /// The household of the visitor, whose pages these are.
    pub(super) fn household(&self) -> Result<amb_store::HouseholdKey, PageError> {
        let detail = "this page shows a household, and you are the operator of the office; see its health instead";
        self.viewer.household.ok_or_else(|| OfficeError::new(Code::Forbidden, detail).into())
    }

    /// The message about the action that was done last.
    pub(super) fn flash(&self) -> Option<Flash> {
        let text = match self.done.as_deref()? {
            "sent" => "Sent.",
            "approved" => "Approved: they are connected now.",
            "rejected" => "Rejected.",
            "blocked" => "Blocked: nothing passes between them.",
            "unblocked" => "Unblocked.",
            "revoked" => "Revoked: they are no longer connected.",
            "asked" => "Asked. Once the other side approves it with the code, they are connected.",
            "paused" => "Paused: its mail is accepted, and waits until you resume it.",
            "resumed" => "Resumed: what waited is there now.",
            "ended" => "Ended: what is sent in it from now on is refused.",
            "canceled" => "Canceled. Both sides are told that it was you.",
            "reassigned" => "Given to another agent, as new mail. The one before is told to stop.",
            _ => return None,
        };
        Some(Flash { bad: false, text: text.to_owned() })
    }
}

/// A form of ours, with the token of the browser that it was shown in.
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

/// The secret of a link.
#[derive(Deserialize)]
pub(super) struct LinkQuery {
    #[serde(default)]
    link: String,
}

/// `GET /dashboard/sign-in?link=…`: uses the link up.
///
/// Answers a page that goes on to the dashboard, instead of a redirect: where the link was clicked on another site, the browser
/// would not send the new cookie along.
pub(super) async fn sign_in(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    Params(query): Params<LinkQuery>,
) -> Result<Response, PageError> {
    let now = Timestamp::now();
    let secret = secret()?;
    let until = now.saturating_add(BROWSER_TIME).unwrap_or(now);
    let browser = SignIn { hash: KeyHash::of(&secret), until };
    let used = is_secret(&query.link) && app.store.use_link(KeyHash::of(&query.link), browser, now).await?;
    if !used {
        app.limits.wrong_key(&*app.store, address).await?;
        let text = "This link was used before, or is older than five minutes. Get a new one:";
        let gate =
            Gate { title: "The link is used up", text, command: Some("amb dashboard"), link: None, at_once: false };
        return Ok(gate.response(StatusCode::GONE));
    }
    let (title, link) = ("You are signed in", Some(("/dashboard", "Go on to the dashboard")));
    let gate = Gate { title, text: "This browser stays signed in for a week.", command: None, link, at_once: true };
    let mut response = gate.response(StatusCode::OK);
    if let Some(cookie) = set_cookie(&app, &headers, &secret, BROWSER_TIME.as_secs()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `HEAD /dashboard/sign-in`: programs look at links before people open them, and must not use them up.
pub(super) async fn no_sign_in() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

/// A form without fields of its own.
#[derive(Deserialize)]
pub(super) struct Nothing {}

/// `POST /dashboard/sign-out`.
pub(super) async fn sign_out(
    State(app): State<App>,
    headers: HeaderMap,
    Posted(visitor, Nothing {}): Posted<Nothing>,
) -> Result<Response, PageError> {
    app.store.sign_out(visitor.browser()).await?;
    let mut response = onward("/dashboard");
    if let Some(cookie) = set_cookie(&app, &headers, "", 0) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response.into_response())
}
