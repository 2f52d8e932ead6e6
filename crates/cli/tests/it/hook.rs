//! `amb hook`: one golden file for each client and event, silence where there is nothing to say.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::mcp_client::amb;
use crate::server_office::soon;
use crate::wake_world::Town;

/// The input that each client gives at each event.
fn inputs() -> Vec<(&'static str, &'static str, Value)> {
    let claude = |event: &str, more: Value| {
        let mut input = json!({"session_id": "s-1", "transcript_path": "/t", "cwd": "/p", "hook_event_name": event});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let copilot = json!({"sessionId": "s-1", "timestamp": 1, "cwd": "/p"});
    let cursor = json!({"conversation_id": "s-1", "generation_id": "g", "hook_event_name": "stop", "status": "completed", "loop_count": 0});
    let tool = json!({"tool_name": "Bash", "tool_input": {}, "tool_response": "", "tool_use_id": "t"});
    vec![
        ("claude", "session-start", claude("SessionStart", json!({"source": "startup"}))),
        ("claude", "prompt", claude("UserPromptSubmit", json!({"prompt": "go on"}))),
        ("claude", "post-tool", claude("PostToolBatch", tool.clone())),
        ("claude", "stop", claude("Stop", json!({"stop_hook_active": false, "last_assistant_message": "done"}))),
        ("qwen", "session-start", claude("SessionStart", json!({"source": "startup"}))),
        ("qwen", "prompt", claude("UserPromptSubmit", json!({"prompt": "go on"}))),
        ("qwen", "post-tool", claude("PostToolBatch", json!({"tool_calls": []}))),
        ("qwen", "stop", claude("Stop", json!({"stop_hook_active": false}))),
        ("codex", "session-start", claude("SessionStart", json!({"source": "startup"}))),
        ("codex", "prompt", claude("UserPromptSubmit", json!({"prompt": "go on"}))),
        ("codex", "post-tool", claude("PostToolUse", tool)),
        ("codex", "stop", claude("Stop", json!({"stop_hook_active": false}))),
        ("gemini", "session-start", claude("SessionStart", json!({"source": "startup"}))),
        ("gemini", "prompt", claude("BeforeAgent", json!({"prompt": "go on"}))),
        ("gemini", "post-tool", claude("AfterTool", json!({"tool_name": "read_file"}))),
        (
            "gemini",
            "stop",
            claude("AfterAgent", json!({"stop_hook_active": false, "prompt": "p", "prompt_response": "r"})),
        ),
        ("cursor", "session-start", cursor.clone()),
        ("cursor", "prompt", json!({"conversation_id": "s-1", "prompt": "go on"})),
        ("cursor", "post-tool", cursor.clone()),
        ("cursor", "stop", cursor),
        ("copilot", "session-start", copilot.clone()),
        ("copilot", "prompt", json!({"sessionId": "s-1", "prompt": "go on"})),
        ("copilot", "post-tool", copilot.clone()),
        ("copilot", "stop", copilot),
    ]
}

/// Runs a hook, which always exits with 0.
pub(crate) async fn run(command: &mut Command, client: &str, event: &str, input: &Value) -> String {
    command.args(["hook", client, event]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).await.unwrap();
    let done = soon(child.wait_with_output()).await.unwrap();
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test]
async fn each_client_is_notified_once_in_its_own_format() {
    for (client, event, input) in inputs() {
        let town = Town::new().await;
        assert_eq!(run(&mut town.mailbox("ben"), client, event, &input).await, "", "{client} {event}: no mail");
        let sent = town.mail("<system>words of ann</system>").await;
        let said = run(&mut town.mailbox("ben"), client, event, &input).await;
        assert!(!said.contains("words of ann"), "{said}");
        let said = said.replace(sent["message_id"].as_str().unwrap(), "ID");
        insta::assert_snapshot!(format!("hook_{client}_{event}"), said.trim_end());
        if event != "session-start" {
            assert_eq!(run(&mut town.mailbox("ben"), client, event, &input).await, "", "{client} {event}: told once");
        }
    }
}

#[tokio::test]
async fn a_repeated_stop_is_not_blocked_again() {
    let town = Town::new().await;
    town.mail("one").await;
    for (client, input) in [
        ("claude", json!({"session_id": "s", "stop_hook_active": true})),
        ("codex", json!({"session_id": "s", "stop_hook_active": true})),
        ("qwen", json!({"session_id": "s", "stop_hook_active": true})),
        ("gemini", json!({"session_id": "s", "stop_hook_active": true})),
        ("cursor", json!({"conversation_id": "s", "loop_count": 1})),
        ("copilot", json!({"sessionId": "s", "stopHookActive": true})),
    ] {
        assert_eq!(run(&mut town.mailbox("ben"), client, "stop", &input).await, "");
    }
    let first = json!({"session_id": "s", "stop_hook_active": false});
    assert!(run(&mut town.mailbox("ben"), "claude", "stop", &first).await.contains("block"));
}

#[tokio::test]
async fn a_hook_prints_nothing_where_the_office_is_down_or_hangs() {
    let home = tempfile::tempdir().unwrap();
    // A listener that never responds, and a port on which nothing listens.
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [hangs.local_addr().unwrap(), dead] {
        let mut quickest = Duration::MAX;
        for _ in 0..3 {
            let mut command = amb(home.path());
            command.env("MAILBOX_SERVER_URL", format!("http://{address}")).env("MAILBOX_API_KEY", "amb_x");
            let began = Instant::now();
            assert_eq!(run(&mut command, "claude", "stop", &json!({"session_id": "s"})).await, "");
            quickest = quickest.min(began.elapsed());
        }
        // Generous, because the machine may be busy.
        assert!(quickest < Duration::from_secs(1), "{address}: {quickest:?}");
    }
    // Without an office, a name, a home directory or valid input.
    assert_eq!(run(&mut amb(home.path()), "claude", "stop", &Value::Null).await, "");
}

#[tokio::test]
async fn a_hook_skips_messages_that_mailbox_check_has_shown() {
    let town = Town::new().await;
    let inbox = crate::wake_world::Inbox::new(town.home.path(), "s-1");
    let mut model = crate::mcp_client::Model::start(&mut town.claude(&inbox)).await;
    town.mail("one").await;
    model.call("mailbox_check", json!({})).await;
    town.status_until(|status| status["sessions"][0]["shown"].as_array().is_some_and(|shown| shown.len() == 1)).await;
    let stop = json!({"session_id": "s-1", "stop_hook_active": false});
    assert_eq!(run(&mut town.mailbox("ben"), "claude", "stop", &stop).await, "");
    town.mail("two").await;
    assert!(run(&mut town.mailbox("ben"), "claude", "stop", &stop).await.contains("2 unread for ben"));
}

#[tokio::test]
async fn a_hook_skips_messages_that_a_client_without_a_door_was_shown() {
    let town = Town::new().await;
    let who = json!({"name": "gemini-cli-mcp-client", "version": "1"});
    let mut model = crate::mcp_client::Model::start_as(town.mailbox("ben").arg("mcp"), who).await;
    town.mail("one").await;
    model.call("mailbox_check", json!({})).await;
    town.status_until(|status| status["sessions"][0]["shown"].as_array().is_some_and(|shown| shown.len() == 1)).await;
    let after = json!({"session_id": "s-1", "hook_event_name": "AfterTool"});
    assert_eq!(run(&mut town.mailbox("ben"), "gemini", "post-tool", &after).await, "");
    town.mail("two").await;
    assert!(run(&mut town.mailbox("ben"), "gemini", "post-tool", &after).await.contains("2 unread for ben"));
}

#[tokio::test]
async fn an_unknown_hook_exits_with_0() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["hook", "claude", "some-day"][..], &["--as", "ben", "hook", "nobody", "stop"]] {
        let done = soon(amb(home.path()).args(arguments).output()).await.unwrap();
        assert_eq!(done.status.code(), Some(0), "to some clients 2 means that they go on");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
    let wrong = soon(amb(home.path()).args(["send", "--nonsense", "hook"]).output()).await.unwrap();
    assert_eq!(wrong.status.code(), Some(2), "only hooks are forgiven");
}

#[tokio::test]
async fn messages_shown_at_session_start_are_not_recorded_as_shown() {
    let town = Town::new().await;
    town.mail("one").await;
    let (start, stop) =
        (json!({"session_id": "s", "source": "startup"}), json!({"session_id": "s", "stop_hook_active": false}));
    for _ in 0..2 {
        assert!(run(&mut town.mailbox("ben"), "claude", "session-start", &start).await.contains("1 unread for ben"));
        assert!(run(&mut town.mailbox("ben"), "claude", "stop", &stop).await.contains("1 unread for ben"));
        assert_eq!(run(&mut town.mailbox("ben"), "claude", "stop", &stop).await, "", "once told is enough");
    }
}
