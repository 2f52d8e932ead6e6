//! `amb mcp` wakes the client that started it, and no other: every way in which a ring can go wrong.

use std::process::Stdio;

use amb_core::{Draft, Mailbox, Timestamp};
use amb_dir::{DirOffice, DirOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::mcp_client::Model;
use crate::server_office::soon;
use crate::wake_world::{Inbox, TOKEN, Town, call_in_thread, called, calls};

const THREAD: &str = "019a2b3c-4d5e-7f60-8123-456789abcdef";

#[tokio::test]
async fn mail_wakes_claude_code_with_counts_and_names_and_no_words() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    let sent = town.mail("words of a subject").await;
    let id = sent["message_id"].as_str().unwrap();
    let line = inbox.ring().await;
    assert_eq!(
        line,
        format!("Agent Mailbox: 1 unread for ben (newest {id}, from ann). Call mailbox_check, handle it, then stop.")
    );
    let status = town.status_until(|status| status["sessions"][0]["door"].is_string()).await;
    let checked = model.call("mailbox_check", json!({})).await;
    assert_eq!(checked["unread"], 1, "a ring reads nothing");
    let session = &status["sessions"][0];
    assert_eq!(
        (&session["client"], &session["door"], &session["tries"]),
        (&json!("claude"), &json!("claude inbox socket"), &json!(1))
    );
    assert_eq!(session["holds_lease"], true);
    assert!(model.close().await.success());
    assert_eq!(town.status().await["sessions"][0]["holds_lease"], false, "given up at the end");
}

#[tokio::test]
async fn mail_that_waited_before_the_client_came_wakes_it() {
    let town = Town::new().await;
    town.mail("early").await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let model = Model::start(&mut town.claude(&inbox)).await;
    assert!(inbox.ring().await.contains("1 unread for ben"));
    // Killed and resumed: the session is the same, and what it was rung for may have died with the client.
    drop(model);
    let mut again = Model::start(&mut town.claude(&inbox)).await;
    assert!(inbox.ring().await.contains("1 unread for ben"));
    assert_eq!(again.call("mailbox_check", json!({})).await["unread"], 1);
}

#[tokio::test]
async fn a_lost_ring_is_followed_by_others_and_then_given_up() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut command = town.claude(&inbox);
    command.args(["--wake-again", "1s,1s"]);
    let _model = Model::start(&mut command).await;
    town.mail("lost").await;
    for _ in 0..3 {
        assert!(inbox.ring().await.contains("1 unread"), "the socket takes it and nothing follows");
    }
    let status = town.status_until(|status| status["sessions"][0]["state"] == "given up").await;
    assert_eq!(status["sessions"][0]["tries"], 3);
    assert!(status["sessions"][0]["hint"].as_str().unwrap().contains("crossSessionInbound"), "{status}");
    assert_eq!(inbox.more(), 0);
}

#[tokio::test]
async fn only_the_most_recently_active_session_of_an_agent_is_woken() {
    let town = Town::new().await;
    let (mut first, mut second) = (Inbox::new(town.home.path(), "one"), Inbox::new(town.home.path(), "two"));
    let mut one = Model::start(&mut town.claude(&first)).await;
    let two = Model::start(&mut town.claude(&second)).await;
    town.status_until(|status| status["sessions"].as_array().unwrap().len() == 2).await;
    one.call("mailbox_check", json!({})).await;
    town.status_until(|status| {
        status["sessions"].as_array().unwrap().iter().any(|s| s["session"] == "one" && s["holds_lease"] == true)
    })
    .await;
    town.mail("for one of them").await;
    assert!(first.ring().await.contains("1 unread"));
    // Its holder gone, the other takes over, and not before.
    let gone = Timestamp::now();
    drop(one);
    assert!(second.ring().await.contains("1 unread"));
    let status = town.status().await;
    let of_two = status["sessions"].as_array().unwrap().iter().find(|session| session["session"] == "two").unwrap();
    let rung: Timestamp = of_two["rung_at"].as_str().unwrap().parse().unwrap();
    assert!(rung > gone && of_two["total"] == 1, "{status}");
    drop(two);
}

#[tokio::test]
async fn every_session_is_woken_where_that_is_asked_for() {
    let town = Town::new().await;
    let (mut first, mut second) = (Inbox::new(town.home.path(), "one"), Inbox::new(town.home.path(), "two"));
    let _one = Model::start(town.claude(&first).args(["--wake", "all"])).await;
    let _two = Model::start(town.claude(&second).args(["--wake", "all"])).await;
    town.mail("for both").await;
    assert!(first.ring().await.contains("1 unread") && second.ring().await.contains("1 unread"));
}

#[tokio::test]
async fn a_thousand_messages_cause_few_rings() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    let office = DirOffice::open(&town.home.path().join("mail"), DirOptions::default()).unwrap();
    let ann = office.mailbox("ann".parse().unwrap());
    for number in 0..1000 {
        ann.send(Draft::text("ben".parse().unwrap(), "storm", number.to_string())).await.unwrap();
    }
    inbox.ring().await;
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1000);
    assert!(inbox.more() <= 2);
}

#[tokio::test]
async fn mail_that_was_read_or_shown_before_the_ring_is_not_rung_for() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    // A wait that is open answers with the mail itself.
    let waited = {
        let (waited, _) =
            tokio::join!(model.call("mailbox_wait", json!({"timeout_seconds": 20})), town.mail("waited for"));
        waited
    };
    assert_eq!(waited["messages"].as_array().unwrap().len(), 1);
    let sent = town.mail("read at once").await;
    model.call("mailbox_read", json!({"session_id": sent["session_id"]})).await;
    let sent = town.mail("shown at once").await;
    let shown = model.call("mailbox_check", json!({})).await;
    assert!(shown.to_string().contains(sent["message_id"].as_str().unwrap()));
    // The next ring is for the next mail, and it is the first.
    let last = town.mail("rung for").await;
    assert!(inbox.ring().await.contains(last["message_id"].as_str().unwrap()));
    assert_eq!(town.status().await["sessions"][0]["total"], 1);
}

#[tokio::test]
async fn codex_is_woken_in_the_thread_it_called_from_last() {
    let town = Town::new().await;
    let (mut command, log) = town.codex("echo Queued");
    let mut model = Model::start(&mut command).await;
    call_in_thread(&mut model, "mailbox_check", "an-older-thread").await;
    call_in_thread(&mut model, "mailbox_check", THREAD).await;
    let sent = town.mail("words of a subject").await;
    let calls = called(&log, 1).await;
    let id = sent["message_id"].as_str().unwrap();
    let line =
        format!("Agent Mailbox: 1 unread for ben (newest {id}, from ann). Call mailbox_check, handle it, then stop.");
    assert_eq!(
        calls[0],
        ["queue", "--resume", "--thread", THREAD, "--message", &line],
        "and no token in its environment"
    );
    let status = town.status_until(|status| status["sessions"][0]["door"] == "codex queue").await;
    assert_eq!(status["sessions"][0]["session"], THREAD);
}

#[tokio::test]
async fn a_codex_that_fails_or_hangs_is_reported_and_retried() {
    let town = Town::new().await;
    let (mut command, log) = town.codex("echo 'no rollout found for thread' >&2; exit 1");
    let mut model = Model::start(command.args(["--wake-again", "1s"])).await;
    call_in_thread(&mut model, "mailbox_check", THREAD).await;
    town.mail("x").await;
    called(&log, 2).await;
    let status = town.status_until(|status| status["sessions"][0]["state"] == "given up").await;
    assert!(status["sessions"][0]["failed"]["detail"].as_str().unwrap().contains("no rollout found"), "{status}");
}

#[tokio::test]
async fn without_a_thread_or_a_known_client_nothing_is_woken() {
    let town = Town::new().await;
    let (mut command, log) = town.codex("echo Queued");
    let mut model = Model::start(&mut command).await;
    // Metadata that would be an argument of the command is none.
    call_in_thread(&mut model, "mailbox_check", "--remote=ws://203.0.113.1").await;
    town.mail("x").await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let other = json!({"name": "gemini-cli-mcp-client", "version": "1"});
    let _gemini = Model::start_as(&mut town.claude(&inbox), other).await;
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1);
    assert_eq!((calls(&log).len(), inbox.more()), (0, 0), "a variable of an outer client is not enough");
}

#[tokio::test]
async fn no_wake_turns_wake_ups_off() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(town.claude(&inbox).arg("--no-wake")).await;
    town.mail("x").await;
    model.notice("notifications/claude/channel").await;
    assert_eq!(inbox.more(), 0);
    assert_eq!(town.status().await["sessions"], json!([]));
}

#[tokio::test]
async fn no_token_is_in_a_log_or_a_file() {
    let town = Town::new().await;
    let inbox = Inbox::new(town.home.path(), "one");
    let mut command = town.claude(&inbox);
    command.env("AMB_LOG", "trace").stderr(Stdio::piped());
    let (mut model, mut stderr) = Model::start_with_stderr(&mut command).await;
    fs_err::remove_file(&inbox.path).unwrap();
    town.mail("x").await;
    town.status_until(|status| status["sessions"][0]["failed"].is_object()).await;
    model.call("mailbox_check", json!({})).await;
    model.close().await;
    let mut log = String::new();
    soon(stderr.read_to_string(&mut log)).await.unwrap();
    assert!(log.contains("could not be woken") && !log.contains(TOKEN), "{log}");
    let found = tokio::process::Command::new("grep").args(["-r", TOKEN]).arg(town.home.path()).output().await.unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
}

#[tokio::test]
async fn a_reply_of_a_woken_model_is_automatic_and_the_last_of_them_wakes_nobody() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    let sent = town.mail("question").await;
    inbox.ring().await;
    model.call("mailbox_check", json!({})).await;
    let reply = json!({"to": "ann", "content": "an answer", "reply_to": sent["message_id"]});
    let reply = model.call("mailbox_send", reply).await;
    let said = town.run(town.mailbox("ann").args(["read", sent["session_id"].as_str().unwrap(), "--json"])).await;
    let history: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(history["messages"][0]["metadata"]["automatic"], true, "{history}");
    // Ann's program answers by itself: hops are used up, so ben is not woken for it, and an answer to it is refused.
    let back = ["send", "ben", "thanks", "--automatic", "--json", "--reply-to", reply["message_id"].as_str().unwrap()];
    let back: Value = serde_json::from_str(&town.run(town.mailbox("ann").args(back)).await).unwrap();
    let checked = model.call("mailbox_check", json!({})).await;
    assert_eq!(checked["unread"], 2);
    let answer = json!({"to": "ann", "content": "no, thank you", "reply_to": back["message_id"]});
    let told = model.fails("mailbox_send", answer.clone()).await;
    assert!(told.contains("loop_refused"), "{told}");
    // What the user asks for passes.
    let mut asked = answer;
    asked["user_request"] = json!(true);
    model.call("mailbox_send", asked).await;
    assert_eq!((inbox.more(), &town.status().await["sessions"][0]["total"]), (0, &json!(1)));
}

#[tokio::test]
async fn a_command_of_a_bridge_gets_no_token_of_a_client() {
    let town = Town::new().await;
    let found = town.home.path().join("environment");
    let mut bridge = town.mailbox("ben");
    bridge.env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN).env("QWEN_CODE_MESSAGING_TOKEN", TOKEN);
    let script = format!("env > {0}.new && mv {0}.new {0}", found.display());
    let _bridge = bridge.args(["bridge", "exec", "--", "sh", "-c", &script]).spawn().unwrap();
    town.mail("run").await;
    soon(async {
        while !found.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let environment = fs_err::read_to_string(&found).unwrap();
    assert!(environment.contains("AMB_FROM=ann") && !environment.contains(TOKEN), "{environment}");
    let mut asked = town.mailbox("ben");
    asked.env("QWEN_CODE_MESSAGING_TOKEN", TOKEN).args([
        "bridge",
        "exec",
        "--env",
        "QWEN_CODE_MESSAGING_TOKEN",
        "--",
        "true",
    ]);
    assert_eq!(asked.output().await.unwrap().status.code(), Some(2));
}

#[tokio::test]
async fn mail_that_a_bridge_holds_wakes_nobody() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let go = town.home.path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; echo answered", go.display());
    let _bridge =
        town.mailbox("ben").args(["bridge", "exec", "--", "sh", "-c", &script]).kill_on_drop(true).spawn().unwrap();
    town.mail("for the bridge").await;
    let mut ann = Model::start(town.mailbox("ann").arg("mcp")).await;
    let office = DirOffice::open(&town.home.path().join("mail"), DirOptions::default()).unwrap();
    let ben = office.mailbox("ben".parse().unwrap());
    soon(async {
        while ben.claimed().await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let _model = Model::start(&mut town.claude(&inbox)).await;
    town.status_until(|status| status["sessions"][0]["state"] == "ready").await;
    fs_err::write(&go, "").unwrap();
    let waited = ann.call("mailbox_wait", json!({"timeout_seconds": 30})).await;
    assert_eq!(waited["messages"][0]["content"], "answered");
    assert_eq!((inbox.more(), &town.status().await["sessions"][0]["total"]), (0, &json!(0)));
}

#[tokio::test]
async fn a_test_rings_once_or_says_what_is_missing() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut here = town.mailbox("ben");
    here.args(["wake", "test"])
        .env("CLAUDE_CODE_MESSAGING_SOCKET", &inbox.path)
        .env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN);
    let said = town.run(&mut here).await;
    assert!(said.contains("by its claude inbox socket") && !said.contains(TOKEN), "{said}");
    assert!(inbox.ring().await.contains("test of the wake-up"));
    for (arguments, hint) in [
        (vec!["wake", "test"], "no client was found"),
        (vec!["wake", "test", "--client", "claude"], "2.1.224"),
        (vec!["wake", "test", "--client", "codex"], "mailbox_check once"),
        (vec!["wake", "test", "--client", "qwen"], "QWEN_CODE_MESSAGING_TOKEN"),
        (vec!["wake", "test", "--client", "gemini"], "amb hook gemini"),
        (vec!["wake", "test", "--client", "cursor"], "amb hook cursor"),
        (vec!["wake", "test", "--client", "copilot"], "amb hook copilot"),
        (vec!["wake", "test", "--client", "opencode"], "amb init opencode"),
        (vec!["wake", "test", "--client", "openclaw"], "amb bridge openclaw"),
        (vec!["wake", "test", "--client", "nanobot"], "amb init nanobot"),
        (vec!["wake", "test", "--client", "windsurf"], "mailbox_wait"),
        (vec!["wake", "test", "--client", "zed"], "mailbox_wait"),
        (vec!["wake", "test", "--client", "vscode"], "mailbox_wait"),
    ] {
        let done = town.mailbox("ben").args(&arguments).output().await.unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.contains(hint), "{arguments:?}: {said}");
    }
    // A session that `amb mcp` serves is found from any shell.
    let (mut command, log) = town.codex("echo Queued");
    let mut model = Model::start(&mut command).await;
    call_in_thread(&mut model, "mailbox_check", THREAD).await;
    town.status_until(|status| status["sessions"][0]["session"] == THREAD).await;
    let path = format!("{}:{}", town.home.path().join("bin").display(), std::env::var("PATH").unwrap());
    let said = town.run(town.mailbox("ben").args(["wake", "test", "--json"]).env("PATH", path)).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["door"], &said["session"]), (&json!("codex queue"), &json!(THREAD)));
    assert_eq!(calls(&log).len(), 1);
}

#[tokio::test]
async fn a_watcher_can_print_one_line_for_each_wake_up() {
    let town = Town::new().await;
    town.mail("words of a subject").await;
    let said = town.run(town.mailbox("ben").args(["watch", "--bell", "--count", "1"])).await;
    assert!(said.starts_with("Agent Mailbox: 1 unread for ben (newest msg_") && !said.contains("words"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[tokio::test]
async fn the_status_names_the_watcher_that_gets_the_wake_ups() {
    let town = Town::new().await;
    let mut watcher = town.mailbox("ben");
    let mut watcher = watcher.args(["watch", "--bell"]).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    town.mail("one").await;
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    soon(lines.next_line()).await.unwrap().unwrap();
    let status = town.status().await;
    assert_eq!(status["leases"][0]["client"], "bell", "{status}");
    assert!(!status.to_string().contains("1970"), "{status}");
    let said = town.mailbox("ben").args(["wake", "status"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let pid = watcher.id().unwrap();
    assert!(said.contains(&format!("ben: wake-ups are printed by `amb watch --bell`, process {pid}")), "{said}");
    assert!(!said.contains("no client was woken"), "{said}");
}

#[tokio::test]
async fn a_client_that_was_killed_is_not_rung_although_its_pipes_stay_open() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mcp = town.claude(&inbox);
    let mut client = tokio::process::Command::new("sh");
    client
        .args(["-c", "exec 3<&0; \"$@\" <&3 & wait", "sh"])
        .arg(mcp.as_std().get_program())
        .args(mcp.as_std().get_args());
    client.env_clear().envs(mcp.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    client.env("AMB_LOG", "amb_mcp=info").kill_on_drop(true);
    let (mut model, stderr) = Model::start_with_stderr(&mut client).await;
    town.status_until(|status| status["sessions"][0]["state"] == "ready").await;
    model.kill().await;
    town.mail("too late").await;
    let mut lines = BufReader::new(stderr).lines();
    while !soon(lines.next_line()).await.unwrap().unwrap().contains("the client is gone; no more wake-ups") {}
    assert_eq!(inbox.more(), 0);
}

#[tokio::test]
async fn a_watcher_is_silent_while_a_client_of_the_same_agent_is_woken() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let model = Model::start(&mut town.claude(&inbox)).await;
    town.status_until(|status| status["sessions"][0]["holds_lease"] == true).await;
    let mut watcher = town.mailbox("ben");
    let watcher = watcher.args(["watch", "--bell", "--count", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    town.mail("one ring").await;
    assert!(inbox.ring().await.contains("1 unread"));
    assert_eq!(town.status().await["leases"][0]["client"], "claude");
    // The client gone, the watcher rings for what is still unread.
    drop(model);
    let said = soon(watcher.wait_with_output()).await.unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("1 unread for ben"));
}
