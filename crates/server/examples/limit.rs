//! The limit that the office is measured against: an axum handler that only parses a send and answers.
//!
//! `cargo run --release -p amb-server --example limit -- 127.0.0.1:8001`

use std::error::Error;

use axum::http::StatusCode;
use axum::routing::post;
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: limit ADDRESS")?;
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, Router::new().route("/messages/send", post(send))).await?;
    Ok(())
}
