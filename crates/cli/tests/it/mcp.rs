//! `amb mcp` as clients start it: often before its office is there.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::io::AsyncWriteExt;

use crate::mcp_client::{Model, amb};
use crate::server_office::{Office, serve_command_at, soon};

#[tokio::test]
async fn a_client_gets_errors_while_the_server_is_down_and_connects_once_it_is_up() {
    let home = tempdir().unwrap();
    let database = format!("sqlite:{}", home.path().join("mail.db").display());
    let office = Office::start(&database).await;
    let (ann, ben) = office.pair(0).await;
    office.send(&ann, &ben, "hello").await.expect(201);
    let (address, server) = (office.address.to_string(), office.url(""));
    office.kill().await;

    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", &server).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    let mut model = Model::start(&mut command).await;
    assert!(model.greeting["instructions"].as_str().unwrap().contains("mailbox_check"), "{}", model.greeting);
    assert_eq!(model.tools().await.len(), 11);
    let told = model.fails("mailbox_check", json!({})).await;
    assert!(told.contains("is the server running?") && !told.contains("amb ") && told.contains("Next: "), "{told}");
    let told = model.fails("mailbox_send", json!({"to": "from-0", "subject": "s", "content": "c"})).await;
    assert!(told.contains("nothing was accepted"), "{told}");

    let office_again = Office::start_with(serve_command_at(&address, &database)).await;
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1);
    // Events after the first successful call are new, although the client started while the server was down.
    let carol = office_again.register("carol").await;
    let told = model.call("send_to_peer", json!({"to": "ghost", "message": "boo"})).await;
    assert!(told["unreachable_reasons"][0].as_str().unwrap().starts_with("unknown agent_id `ghost`"), "{told}");
    let asked = model.call("mailbox_connect", json!({"target_agent_name": "carol"})).await;
    office_again
        .post(&carol, "/connections/approve", json!({"verification_code": asked["verification_code"]}))
        .await
        .expect(200);
    let told = model.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
    assert_eq!(told["news"][0]["agent"], "carol", "{told}");

    // A wait survives a restart, whether it began before or during it.
    let restart = async {
        office_again.kill().await;
        let back = Office::start_with(serve_command_at(&address, &database)).await;
        back.send(&ann, &ben, "after the restart").await.expect(201);
        back
    };
    let (told, _back) = tokio::join!(model.call("mailbox_wait", json!({"timeout_seconds": 55})), restart);
    assert_eq!(told["messages"][0]["content"], "after the restart", "{told}");
    assert!(model.close().await.success());
}

#[tokio::test]
async fn a_client_that_leaves_while_the_server_is_down_is_not_held_up() {
    let home = tempdir().unwrap();
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", "http://127.0.0.1:9").env("MAILBOX_API_KEY", "amb_none").arg("mcp");
    let model = Model::start(&mut command).await;
    assert!(model.close().await.success());
}

#[tokio::test]
async fn what_was_sent_before_the_end_of_input_is_answered() {
    let home = tempdir().unwrap();
    let mut command = amb(home.path());
    command.arg("--dir").arg(home.path().join("mail")).args(["--as", "ben", "mcp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}});
    let call = json!({"name": "mailbox_check", "arguments": {}});
    let mut lines = String::new();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ] {
        lines.push_str(&format!("{message}\n"));
    }
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).await.unwrap();
    drop(stdin);
    let output = soon(child.wait_with_output()).await.unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(answers.lines().last().unwrap()).unwrap();
    assert_eq!((&last["id"], &last["result"]["structuredContent"]["unread"]), (&json!(2), &json!(0)), "{answers}");
}

#[tokio::test]
async fn the_tools_report_a_key_that_the_server_does_not_know() {
    let home = tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", office.url("")).env("MAILBOX_API_KEY", "amb_wrong").arg("mcp");
    let mut model = Model::start(&mut command).await;
    let told = model.fails("mailbox_check", json!({})).await;
    assert!(told.starts_with("unauthorized") && told.contains("MAILBOX_API_KEY"), "{told}");
    assert!(model.close().await.success());
}

#[tokio::test]
async fn a_directory_that_is_not_there_yet_is_made_with_the_agent_in_it() {
    let home = tempdir().unwrap();
    let root = home.path().join("deep/mail");
    let mailbox = |name: &str| {
        let mut command = amb(home.path());
        command.arg("--dir").arg(&root).args(["--as", name, "mcp"]);
        command
    };
    let (mut ann, mut ben) = (Model::start(&mut mailbox("ann")).await, Model::start(&mut mailbox("ben")).await);
    assert!(ann.greeting["instructions"].as_str().unwrap().starts_with("You are ann."), "{}", ann.greeting);
    assert_eq!(ann.call("list_peers", json!({})).await["peers"][0]["agent_id"], "ben");
    ann.call("mailbox_send", json!({"to": "ben", "subject": "Plan", "content": "hello"})).await;
    assert_eq!(ben.call("mailbox_check", json!({})).await["unread"], 1);
    assert!(ann.close().await.success() && ben.close().await.success());
}

#[tokio::test]
async fn processes_of_one_agent_take_nothing_from_each_other() {
    // OpenClaw starts one for every session, and none of them is the bridge.
    let home = tempdir().unwrap();
    let mailbox = |name: &str| {
        let mut command = amb(home.path());
        command.arg("--dir").arg(home.path().join("mail")).args(["--as", name, "mcp"]);
        command
    };
    let (mut one, mut two) = (Model::start(&mut mailbox("ben")).await, Model::start(&mut mailbox("ben")).await);
    let mut ann = Model::start(&mut mailbox("ann")).await;
    one.call("mailbox_check", json!({})).await;
    ann.call("mailbox_send", json!({"to": "ben", "subject": "Plan", "content": "hello"})).await;
    for model in [&mut one, &mut two] {
        let told = model.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
        assert_eq!(told["messages"][0]["content"], "hello", "{told}");
    }
    // Shown by both and read by neither, it can still be claimed.
    assert_eq!(two.call("mailbox_check", json!({})).await["unread"], 1);
}

#[tokio::test]
async fn a_path_that_cannot_be_a_directory_is_an_error_at_the_start() {
    let home = tempdir().unwrap();
    let file = home.path().join("file");
    fs_err::write(&file, "").unwrap();
    let ended = amb(home.path()).arg("--dir").arg(&file).args(["--as", "ann", "mcp"]).output().await.unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("is not a directory; name one that is"), "{said}");
}

#[tokio::test]
async fn a_missing_agent_name_is_an_error_at_the_start() {
    let home = tempdir().unwrap();
    let ended = amb(home.path()).arg("--dir").arg(home.path()).arg("mcp").output().await.unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8(ended.stderr).unwrap().contains("--as NAME"));
}
