//! The upper bound that the office is measured against: an axum handler that only parses a send and responds. To
//! compare with a history of 20 messages, it also returns a response of that size from memory.
//!
//! `cargo run --release -p amb-server --example limit -- 127.0.0.1:8001`

use std::error::Error;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Send {
    to: String,
    subject: String,
    content: String,
}

#[derive(Serialize)]
struct Sent {
    message_id: String,
    session_id: String,
    subject: String,
    created_at: String,
}

async fn send(Json(send): Json<Send>) -> (StatusCode, Json<Sent>) {
    let sent = Sent {
        message_id: send.to,
        session_id: send.content.len().to_string(),
        subject: send.subject,
        created_at: "2026-02-22T10:05:00Z".to_owned(),
    };
    (StatusCode::CREATED, Json(sent))
}

#[derive(Serialize)]
struct View {
    id: &'static str,
    sender_name: &'static str,
    content: String,
    created_at: &'static str,
    is_read: bool,
}

#[derive(Serialize)]
struct History {
    session_id: &'static str,
    subject: &'static str,
    messages: Vec<View>,
}

async fn history() -> Json<History> {
    let view = || View {
        id: "0190a5b2-0000-7000-8000-000000000000",
        sender_name: "pair-0-from",
        content: "m".repeat(200),
        created_at: "2026-02-22T10:05:00.123456Z",
        is_read: true,
    };
    let messages = (0..20).map(|_| view()).collect();
    Json(History { session_id: view().id, subject: "Load", messages })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: limit ADDRESS")?;
    let listener = TcpListener::bind(address).await?;
    let router = Router::new().route("/messages/send", post(send)).route("/sessions/{id}/history", get(history));
    axum::serve(listener, router).await?;
    Ok(())
}
