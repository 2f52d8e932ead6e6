//! An agent that answers each prompt with the id of the mail in it, on the official crate, which refuses what is not in its schema.

use std::sync::atomic::{AtomicU64, Ordering};

use agent_client_protocol::v1::schema::{
    AgentCapabilities, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, SessionNotification, SessionUpdate, StopReason, TextContent,
};
use agent_client_protocol::{Agent, Result, Stdio, on_receive_request};

static SESSIONS: AtomicU64 = AtomicU64::new(1);

#[tokio::main]
async fn main() -> Result<()> {
    Agent
        .v1()
        .name("official")
        .on_receive_request(
            async move |asked: InitializeRequest, responder, _| {
                let answer = InitializeResponse::new(asked.protocol_version);
                responder.respond(answer.agent_capabilities(AgentCapabilities::new()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |asked: NewSessionRequest, responder, _| {
                assert!(asked.cwd.is_absolute() && asked.mcp_servers.is_empty());
                responder.respond(NewSessionResponse::new(format!("s{}", SESSIONS.fetch_add(1, Ordering::Relaxed))))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |asked: PromptRequest, responder, connection| {
                let text = asked.prompt.iter().filter_map(|block| match block {
                    ContentBlock::Text(text) => Some(text.text.as_str()),
                    _ => None,
                });
                let text: String = text.collect();
                let id = text.rsplit_once(" id=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or("none");
                let said = ContentBlock::Text(TextContent::new(format!("answer to {id}")));
                let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(said));
                connection.send_notification(SessionNotification::new(asked.session_id, update))?;
                responder.respond(PromptResponse::new(StopReason::EndTurn))
            },
            on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
