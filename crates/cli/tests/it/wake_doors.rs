//! The doors by which `amb mcp` wakes its client, where they hang, refuse or say what became of a ring.

use std::path::Path;
use std::process::Stdio;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

use crate::mcp_client::Model;
use crate::server_office::soon;
use crate::wake_world::{Inbox, TOKEN, Town, call_in_thread, called, calls};

const THREAD: &str = "019a2b3c-4d5e-7f60-8123-456789abcdef";

fn is_running(pid: &str) -> bool {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_codex_that_hangs_is_killed_with_what_it_started_and_tried_again() {
    let town = Town::new().await;
    let pids = town.home.path().join("pids");
    // Like the launcher of npm, whose child would outlive it.
    let script = format!("sleep 600 & echo $$ $! >> {}; wait", pids.display());
    let (mut command, log) = town.codex(&script);
    let mut model = Model::start(command.args(["--wake-again", "1s"])).await;
    call_in_thread(&mut model, "mailbox_check", THREAD).await;
    town.mail("x").await;
    called(&log, 2).await;
    let status = town.status_until(|status| status["sessions"][0]["state"] == "given up").await;
    let failed = status["sessions"][0]["failed"]["detail"].as_str().unwrap();
    assert!(failed.contains("did not end within 10 s and was killed"), "{status}");
    assert_eq!((status["sessions"][0]["tries"].as_u64(), calls(&log).len()), (Some(2), 2));
    let started = fs_err::read_to_string(&pids).unwrap();
    let started: Vec<&str> = started.split_whitespace().collect();
    assert_eq!(started.len(), 4);
    soon(async {
        while started.iter().any(|pid| is_running(pid)) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    // While a ring hangs, the model is served all the same.
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1);
}

/// Codex' app server, whose thread is idle: what it was asked, in the order of the calls. `turn/start` may be refused.
fn app_server(codex_home: &Path, refuses: bool) -> mpsc::Receiver<Value> {
    let directory = codex_home.join("app-server-control");
    fs_err::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("app-server-control.sock")).unwrap();
    let (asked, requests) = mpsc::channel(100);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut socket = accept_async(stream).await.unwrap();
            while let Some(Ok(frame)) = socket.next().await {
                let Message::Text(text) = frame else { continue };
                let request: Value = serde_json::from_str(&text).unwrap();
                let result = match request["method"].as_str().unwrap() {
                    "thread/read" => json!({"result": {"thread": {"status": {"type": "idle"}}}}),
                    "turn/start" if refuses => json!({"error": {"code": -32001, "message": "overloaded"}}),
                    _ => json!({"result": {}}),
                };
                let mut answer = result;
                answer["id"] = request["id"].clone();
                if request.get("id").is_some() {
                    socket.send(Message::text(answer.to_string())).await.unwrap();
                }
                asked.send(request).await.unwrap();
            }
        }
    });
    requests
}

/// The next `turn/start`.
async fn turn(requests: &mut mpsc::Receiver<Value>) -> Value {
    soon(async {
        loop {
            let request = requests.recv().await.unwrap();
            if request["method"] == "turn/start" {
                return request;
            }
        }
    })
    .await
}

#[tokio::test]
async fn urgent_mail_starts_a_turn_on_codex_app_server_and_is_queued_where_that_refuses() {
    for refuses in [false, true] {
        let town = Town::new().await;
        let codex_home = town.home.path().join("codex");
        let mut requests = app_server(&codex_home, refuses);
        let (mut command, log) = town.codex("echo Queued");
        let mut model = Model::start(command.env("CODEX_HOME", &codex_home)).await;
        call_in_thread(&mut model, "mailbox_check", THREAD).await;
        let urgent = ["send", "ben", "words of ann", "--subject", "fire", "--priority", "urgent"];
        town.run(town.mailbox("ann").args(urgent)).await;
        let turn = turn(&mut requests).await;
        assert_eq!(turn["params"]["threadId"], THREAD);
        let line = turn["params"]["input"][0]["text"].as_str().unwrap();
        assert!(line.starts_with("Agent Mailbox: 1 unread for ben") && !line.contains("words"), "{line}");
        let door = if refuses { "codex queue" } else { "codex app server" };
        let status = town.status_until(|status| status["sessions"][0]["door"].is_string()).await;
        assert_eq!(status["sessions"][0]["door"], door, "{status}");
        assert_eq!(calls(&log).len(), usize::from(refuses));
    }
}

#[tokio::test]
async fn ordinary_mail_is_queued_although_there_is_an_app_server() {
    let town = Town::new().await;
    let codex_home = town.home.path().join("codex");
    let mut requests = app_server(&codex_home, false);
    let (mut command, log) = town.codex("echo Queued");
    let mut model = Model::start(command.env("CODEX_HOME", &codex_home)).await;
    call_in_thread(&mut model, "mailbox_check", THREAD).await;
    town.mail("no hurry").await;
    called(&log, 1).await;
    town.status_until(|status| status["sessions"][0]["door"] == "codex queue").await;
    while let Ok(request) = requests.try_recv() {
        assert_ne!(request["method"], "turn/start");
    }
}

/// A session of Qwen Code that gives this receipt for whatever it gets, and tells what it got.
fn qwen(socket: &Path, receipt: &'static str) -> mpsc::Receiver<Vec<Value>> {
    let listener = UnixListener::bind(socket).unwrap();
    let (sender, rings) = mpsc::channel(100);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut lines = BufReader::new(stream).lines();
            let mut said: Vec<Value> = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                said.push(serde_json::from_str(&line).unwrap());
            }
            let frame = &said[1];
            let auth = json!({"msgV": 1, "type": "auth", "token": frame["replyToken"]});
            let receipt = json!({"msgV": 1, "msgId": "r", "type": "control", "action": "delivery_status", "status": receipt,
                "origMsgId": frame["msgId"]});
            let mut back = UnixStream::connect(frame["from"].as_str().unwrap()).await.unwrap();
            back.write_all(format!("{auth}\n{receipt}\n").as_bytes()).await.unwrap();
            sender.send(said).await.unwrap();
        }
    });
    rings
}

#[tokio::test]
async fn qwen_code_is_woken_by_its_socket_and_what_it_says_of_that_is_shown() {
    for (receipt, state) in [("delivered", "rung"), ("held", "held"), ("refused", "failed")] {
        let town = Town::new().await;
        let socket = town.home.path().join("qwen.sock");
        let mut rings = qwen(&socket, receipt);
        let mut command = town.mailbox("ben");
        command.arg("mcp").env("QWEN_CODE_MESSAGING_SOCKET", &socket).env("QWEN_CODE_SESSION_ID", "q-1");
        command.env("QWEN_CODE_MESSAGING_TOKEN", TOKEN).env("AMB_LOG", "trace").stderr(Stdio::piped());
        let mut model = Model::start_as(&mut command, json!({"name": "qwen-cli-mcp-client", "version": "1"})).await;
        let mut stderr = model.stderr();
        town.mail("words of a subject").await;
        let said = soon(rings.recv()).await.unwrap();
        assert_eq!(said[0], json!({"msgV": 1, "type": "auth", "token": TOKEN}));
        let line = said[1]["message"]["content"].as_str().unwrap();
        assert!(line.starts_with("Agent Mailbox: 1 unread for ben") && !line.contains("words"), "{line}");
        let status = town.status_until(|status| status["sessions"][0]["state"] == state).await;
        match receipt {
            "refused" => {
                assert!(status["sessions"][0]["failed"]["detail"].as_str().unwrap().contains("refuses"), "{status}")
            }
            said => assert_eq!(status["sessions"][0]["receipt"], said, "{status}"),
        }
        if receipt == "held" {
            assert!(status["sessions"][0]["hint"].as_str().unwrap().contains("/peers"), "{status}");
        }
        assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1, "a ring reads nothing");
        model.close().await;
        let mut log = String::new();
        soon(stderr.read_to_string(&mut log)).await.unwrap();
        assert!(!log.contains(TOKEN), "{log}");
        let found =
            tokio::process::Command::new("grep").args(["-r", TOKEN]).arg(town.home.path()).output().await.unwrap();
        assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
    }
}

#[tokio::test]
async fn a_ring_that_cannot_be_written_down_is_not_made() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let (_model, stderr) = Model::start_with_stderr(town.claude(&inbox).env("AMB_LOG", "amb_mcp=warn")).await;
    town.status_until(|status| status["sessions"][0]["state"] == "ready").await;
    let mut find = tokio::process::Command::new("find");
    let found = find.arg(town.home.path()).args(["-name", "*.ledger.json"]).output().await.unwrap();
    let ledger = Path::new(std::str::from_utf8(&found.stdout).unwrap().trim()).to_owned();
    fs_err::remove_file(&ledger).unwrap();
    fs_err::create_dir_all(ledger.join("in the way")).unwrap();
    town.mail("x").await;
    let mut lines = BufReader::new(stderr).lines();
    while !soon(lines.next_line()).await.unwrap().unwrap().contains("not rung: the ledger") {}
    assert_eq!(inbox.more(), 0);
}

#[tokio::test]
async fn only_one_of_two_servers_of_a_session_rings() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    // A client that has the server in its own file and in a plugin starts it twice.
    let (_one, first) = Model::start_with_stderr(town.claude(&inbox).env("AMB_LOG", "amb_mcp=trace")).await;
    let (_two, second) = Model::start_with_stderr(town.claude(&inbox).env("AMB_LOG", "amb_mcp=trace")).await;
    let (first, second) = (BufReader::new(first).lines(), BufReader::new(second).lines());
    town.status_until(|status| status["leases"].as_array().is_some_and(|leases| leases.len() == 1)).await;
    town.mail("for both").await;
    // Both have seen it, and one of them leaves it to the other.
    let sees = async |mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStderr>>| loop {
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        let looked = line.contains("looked") && line.contains("waiting=1");
        if looked && (line.contains("decision=Ring") || line.contains("holds_lease=false")) {
            return (lines, line.contains("decision=Ring"));
        }
    };
    let ((_first, one), (_second, two)) = tokio::join!(sees(first), sees(second));
    assert!(one != two, "one of them rings: {one} {two}");
    assert!(inbox.ring().await.contains("1 unread for ben"));
    assert_eq!(inbox.more(), 0);
}

#[tokio::test]
async fn a_watcher_ends_with_the_process_that_started_it() {
    let town = Town::new().await;
    let watcher = town.mailbox("ben");
    let mut plugin = tokio::process::Command::new("sh");
    plugin.args(["-c", "\"$@\" watch --bell & echo $!; wait", "sh"]).arg(watcher.as_std().get_program());
    plugin.args(watcher.as_std().get_args()).env_clear().kill_on_drop(true).stdout(Stdio::piped());
    plugin.envs(watcher.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut plugin = plugin.spawn().unwrap();
    let mut lines = BufReader::new(plugin.stdout.take().unwrap()).lines();
    let pid = soon(lines.next_line()).await.unwrap().unwrap();
    town.mail("one").await;
    assert!(soon(lines.next_line()).await.unwrap().unwrap().contains("1 unread for ben"));
    plugin.kill().await.unwrap();
    // Its output ends when it does.
    assert_eq!(soon(lines.next_line()).await.unwrap(), None);
    soon(async {
        while is_running(&pid) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(town.status().await["leases"], json!([]), "and its lease is nobody's");
}
