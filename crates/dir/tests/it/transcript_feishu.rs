//! The Feishu history against a fake server that follows the public reference.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use amb_core::Code;
use amb_dir::transcript::feishu::{FeishuApp, FeishuHistory, RetryPolicy};
use amb_dir::transcript::{HistorySource as _, TranscriptStore};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::transcript::{contents, key};

/// The fake server: its messages, the current token, and responses to give first.
#[derive(Default)]
struct Service {
    /// Its address.
    base: String,
    messages: Vec<Value>,
    tokens: u64,
    expire: u64,
    asked: Vec<String>,
    first: Vec<(StatusCode, Option<&'static str>, Value)>,
}

type Shared = Arc<Mutex<Service>>;

async fn token(State(service): State<Shared>, Json(body): Json<Value>) -> Json<Value> {
    let mut service = service.lock().unwrap();
    service.asked.push("token".into());
    if body != json!({"app_id": "cli_1", "app_secret": "s3cret"}) {
        return Json(json!({"code": 10014, "msg": "app secret invalid"}));
    }
    service.tokens += 1;
    Json(
        json!({"code": 0, "msg": "ok", "tenant_access_token": format!("t-{}", service.tokens), "expire": service.expire}),
    )
}

async fn messages(
    State(service): State<Shared>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let mut service = service.lock().unwrap();
    service.asked.push(format!(
        "messages {} {}",
        query["page_size"],
        query.get("page_token").map_or("", String::as_str)
    ));
    if !service.first.is_empty() {
        let (status, reset, body) = service.first.remove(0);
        let headers: HeaderMap =
            reset.map(|reset| ("x-ogw-ratelimit-reset".parse().unwrap(), reset.parse().unwrap())).into_iter().collect();
        return (status, headers, Json(body)).into_response();
    }
    if headers["authorization"] != format!("Bearer t-{}", service.tokens) {
        let body =
            json!({"code": 99991663, "msg": "Invalid access token for authorization. Please make a test attempt."});
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    if query["container_id_type"] != "chat"
        || query["container_id"] != "oc_1"
        || query["sort_type"] != "ByCreateTimeDesc"
    {
        return (StatusCode::BAD_REQUEST, Json(json!({"code": 230001, "msg": "invalid container_id"}))).into_response();
    }
    let size: usize = query["page_size"].parse().unwrap();
    assert!((1..=50).contains(&size));
    let from: usize = query.get("page_token").map_or(0, |token| token.parse().unwrap());
    let items: Vec<_> = service.messages.iter().rev().skip(from).take(size).cloned().collect();
    let next = from + items.len();
    let data = json!({"items": items, "has_more": next < service.messages.len(), "page_token": next.to_string()});
    Json(json!({"code": 0, "msg": "success", "data": data})).into_response()
}

fn message(n: usize, sender_type: &str, msg_type: &str, content: Value) -> Value {
    json!({
        "message_id": format!("om_{n}"), "msg_type": msg_type, "create_time": format!("{}", 1_700_000_000_000_u64 + n as u64),
        "update_time": "1700000000000", "deleted": false, "updated": false, "chat_id": "oc_1",
        "sender": {"id": format!("{sender_type}_{n}"), "id_type": "open_id", "sender_type": sender_type, "tenant_key": "k"},
        "body": {"content": content.to_string()},
    })
}

/// Starts the fake server, and returns a history that uses it.
async fn service(count: usize) -> (Shared, FeishuHistory) {
    let messages_there = (0..count).map(|n| message(n, "user", "text", json!({"text": n.to_string()}))).collect();
    let shared: Shared =
        Arc::new(Mutex::new(Service { messages: messages_there, expire: 7_200, ..Service::default() }));
    let app = Router::new()
        .route("/open-apis/auth/v3/tenant_access_token/internal", post(token))
        .route("/open-apis/im/v1/messages", get(messages))
        .with_state(Arc::clone(&shared));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    shared.lock().unwrap().base.clone_from(&base);
    (shared, source(&base, "s3cret"))
}

fn source(base: &str, secret: &str) -> FeishuHistory {
    // The client needs a crypto provider even for plain HTTP; a second installation fails.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let app = FeishuApp { app_id: "cli_1".into(), app_secret: secret.into() };
    let policy = RetryPolicy { tries: 4, first_wait: Duration::from_millis(5), total_wait: Duration::from_secs(5) };
    FeishuHistory::new(reqwest::Client::builder(), base, app).unwrap().with_retry_policy(policy)
}

#[tokio::test]
async fn the_last_messages_come_page_by_page_oldest_first_with_one_token() {
    let (service, history) = service(130).await;
    let lines = history.recent(&key("feishu:oc_1"), 120).await.unwrap();
    assert_eq!(contents(lines), (10..130).map(|n| n.to_string()).collect::<Vec<_>>());
    let few = history.recent(&key("lark:oc_1"), 3).await.unwrap();
    assert_eq!(few[0].ts, Some(1_700_000_000_127.0));
    assert_eq!((few[0].message_id.as_deref(), few[0].sender.as_str()), (Some("om_127"), "user_127"));
    let asked = service.lock().unwrap().asked.clone();
    assert_eq!(asked, ["token", "messages 50 ", "messages 50 50", "messages 50 100", "messages 3 "]);
}

#[tokio::test]
async fn the_apps_secret_is_not_sent_on_to_where_the_service_redirects() {
    let (elsewhere, _) = service(1).await;
    let target = elsewhere.lock().unwrap().base.clone();
    let redirect = move |uri: axum::http::Uri| {
        let target = format!("{}{}", target.trim_end_matches('/'), uri.path());
        async move { axum::response::Redirect::temporary(&target) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(redirect)).await.unwrap() });
    let error = source(&base, "s3cret").recent(&key("feishu:oc_1"), 3).await.unwrap_err();
    assert!(error.to_string().contains("see the base URL"), "{error}");
    assert_eq!(elsewhere.lock().unwrap().asked, Vec::<String>::new());
}

#[tokio::test]
async fn people_are_users_apps_are_assistants_and_what_has_no_text_is_named() {
    let (service, history) = service(0).await;
    let mut recalled = message(3, "user", "text", json!({"text": "recalled"}));
    recalled["deleted"] = json!(true);
    let mut mention = message(2, "app", "text", json!({"text": "@_user_1 done"}));
    mention["mentions"] = json!([{"key": "@_user_1", "id": "ou_1", "id_type": "open_id", "name": "Ann"}]);
    service.lock().unwrap().messages = vec![
        message(1, "user", "image", json!({"image_key": "k"})),
        mention,
        recalled,
        json!({"message_id": 7}),
        json!("odd"),
    ];
    let lines = history.recent(&key("feishu:oc_1"), 20).await.unwrap();
    let seen: Vec<_> = lines.iter().map(|line| (line.role.as_str(), line.content.as_str())).collect();
    assert_eq!(seen, [("user", "[image]"), ("assistant", "@Ann done")]);
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_an_old_one_is_not_shown() {
    let (service, history) = service(2).await;
    history.recent(&key("feishu:oc_1"), 1).await.unwrap();
    // The service has issued another token meanwhile and accepts only that one or a newer one.
    service.lock().unwrap().tokens += 5;
    assert_eq!(history.recent(&key("feishu:oc_1"), 2).await.unwrap().len(), 2);
    service.lock().unwrap().expire = 0;
    service.lock().unwrap().tokens += 5;
    service.lock().unwrap().asked.clear();
    history.recent(&key("feishu:oc_1"), 1).await.unwrap();
    history.recent(&key("feishu:oc_1"), 1).await.unwrap();
    let asked = service.lock().unwrap().asked.clone();
    assert_eq!(asked, ["messages 1 ", "token", "messages 1 ", "token", "messages 1 "]);
}

#[tokio::test]
async fn a_token_that_is_refused_again_is_an_error_and_not_a_loop() {
    let (service, history) = service(2).await;
    let refused = (StatusCode::BAD_REQUEST, None, json!({"code": 99991668, "msg": "Invalid access token"}));
    service.lock().unwrap().first = vec![refused; 9];
    assert_eq!(history.recent(&key("feishu:oc_1"), 2).await.unwrap_err().code(), Code::Unauthorized);
    assert_eq!(service.lock().unwrap().asked.len(), 4);
}

#[tokio::test]
async fn a_busy_service_is_retried_after_the_requested_wait() {
    let (service, history) = service(2).await;
    let limit = json!({"code": 99991400, "msg": "request trigger frequency limit"});
    service.lock().unwrap().first = vec![
        (StatusCode::TOO_MANY_REQUESTS, Some("0.01"), limit.clone()),
        (StatusCode::BAD_REQUEST, None, limit),
        (StatusCode::BAD_GATEWAY, None, json!("not from the service")),
    ];
    assert_eq!(contents(history.recent(&key("feishu:oc_1"), 2).await.unwrap()), ["0", "1"]);
}

#[tokio::test]
async fn a_service_that_stays_busy_is_an_error_with_retry_after() {
    let (service, history) = service(2).await;
    let limit = json!({"code": 99991400, "msg": "request trigger frequency limit"});
    service.lock().unwrap().first = vec![(StatusCode::TOO_MANY_REQUESTS, Some("0"), limit.clone()); 9];
    let error = history.recent(&key("feishu:oc_1"), 2).await.unwrap_err();
    assert_eq!(error.code(), Code::TooManyRequests);
    assert_eq!(service.lock().unwrap().first.len(), 5, "four tries");
    service.lock().unwrap().first = vec![(StatusCode::TOO_MANY_REQUESTS, Some("90"), limit)];
    let error = history.recent(&key("feishu:oc_1"), 2).await.unwrap_err();
    assert_eq!((error.code(), error.wait()), (Code::TooManyRequests, Some(Duration::from_secs(90))));
}

#[tokio::test]
async fn failures_say_what_is_wrong_and_never_show_the_secret() {
    let (service, history) = service(2).await;
    let no_right =
        json!({"code": 230027, "msg": "Lack of necessary permissions, ext=need scope: im:message.group_msg"});
    service.lock().unwrap().first = vec![(StatusCode::FORBIDDEN, None, no_right)];
    let error = history.recent(&key("feishu:oc_1"), 2).await.unwrap_err();
    assert_eq!(error.code(), Code::Forbidden);
    assert!(error.detail().contains("im:message.group_msg"), "{error}");
    for bad in ["telegram:1", "feishu:", "feishu:oc_1&container_id=oc_2"] {
        assert_eq!(history.recent(&key(bad), 2).await.unwrap_err().code(), Code::Invalid);
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = source(&format!("http://{nobody}"), "s3cret");
    let error = unreachable.recent(&key("feishu:oc_1"), 2).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(!format!("{error:?} {unreachable:?}").contains("s3cret"));
}

#[tokio::test]
async fn an_empty_transcript_falls_back_to_the_service() {
    let (_service, history) = service(3).await;
    let root = tempfile::tempdir().unwrap();
    let store = TranscriptStore::open(root.path()).unwrap();
    let lines = store.recent_or_fallback(&key("feishu:oc_1"), 2, &history).await.unwrap();
    assert_eq!(contents(lines), ["1", "2"]);
}
