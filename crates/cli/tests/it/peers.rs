//! Live goals in processes of their own, through the binary.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use amb_live::broker::{MessageHandler, PublicationRefused};
use amb_live::{GoalId, LivePeers, NatsOptions, Publication};
use amb_testing::NatsServer;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::server_office::soon;

fn amb(nats: &NatsServer, me: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
    command.args(["--as", me]).args(args).env("NATS_URL", nats.url()).kill_on_drop(true);
    command
}

async fn run(nats: &NatsServer, me: &str, args: &[&str]) -> Output {
    let output = soon(amb(nats, me, args).output()).await.unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

async fn peers(nats: &NatsServer) -> Vec<String> {
    let list: Value = serde_json::from_slice(&run(nats, "ann", &["--json", "peers"]).await.stdout).unwrap();
    list["peers"].as_array().unwrap().iter().map(|peer| peer["agent_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_in_another_process_is_seen_and_written_to_and_gone_when_it_was_killed() {
    let nats = NatsServer::start();
    // The first to connect decides how long a dead process is listed: a short time, for this test.
    let options = NatsOptions { expiry: Duration::from_secs(3), ..nats.options() };
    let _first = LivePeers::connect(options).await.unwrap();

    let mut ben = amb(&nats, "ben", &["--json", "peer", "listen", "--description", "builds"]);
    let mut ben = ben.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(ben.stdout.take().unwrap()).lines();
    soon(async { while peers(&nats).await != ["ben"] {} }).await;

    let sent = run(&nats, "ann", &["peer", "send", "ben", "task #1 is ready"]).await;
    assert_eq!(String::from_utf8(sent.stdout).unwrap().trim(), "delivered to 1 goal");
    let heard: Value = serde_json::from_str(&soon(said.next_line()).await.unwrap().unwrap()).unwrap();
    assert_eq!((&heard["from_agent_id"], &heard["body"]), (&"ann".into(), &"task #1 is ready".into()));

    let mut piped = amb(&nats, "ann", &["peer", "send", "ben", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"from a pipe").await.unwrap();
    assert!(soon(piped.wait()).await.unwrap().success());
    let heard: Value = serde_json::from_str(&soon(said.next_line()).await.unwrap().unwrap()).unwrap();
    assert_eq!(heard["body"], "from a pipe");

    ben.start_kill().unwrap();
    soon(ben.wait()).await.unwrap();
    // It may still be listed, but a send finds out at once.
    let sent = soon(amb(&nats, "ann", &["--json", "peer", "send", "ben", "still there?"]).output()).await.unwrap();
    assert_eq!(sent.status.code(), Some(3), "a script must see that nobody was reached");
    let hint = String::from_utf8_lossy(&sent.stderr);
    assert!(hint.contains("ben does not run now; --durable leaves it in the mailbox of ben"), "{hint}");
    let report: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(report["delivered_to"], serde_json::json!([]), "{report}");
    assert_eq!(report["unreachable_reasons"].as_array().unwrap().len(), 1, "{report}");
    soon(async { while !peers(&nats).await.is_empty() {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_in_a_nats_url_is_never_shown() {
    const SECRET: &str = "s3cret";
    let nats = NatsServer::start();
    let home = tempfile::tempdir().unwrap();
    let with_password = |url: &str| url.replace("nats://", &format!("nats://ann:{SECRET}@"));
    // One that answers, and one that nobody listens at.
    for url in [with_password(&nats.url()), with_password("nats://127.0.0.1:1")] {
        for args in [&["peers"][..], &["--json", "peers"], &["peer", "send", "ben", "hello"], &["-vv", "peers"]] {
            let mut command = amb(&nats, "ann", args);
            let ended = soon(command.env("NATS_URL", &url).output()).await.unwrap();
            let said = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
            assert!(!said.contains(SECRET), "{args:?}: {said}");
        }
        let errors = home.path().join("errors");
        let mut command = crate::mcp_client::amb(home.path());
        command.arg("--dir").arg(home.path().join("mail")).args(["--as", "ann", "mcp", "--nats-url", &url]);
        command.stderr(fs_err::File::create(&errors).unwrap().into_parts().0);
        let mut model = crate::mcp_client::Model::start(&mut command).await;
        for (tool, arguments) in [
            ("list_peers", serde_json::json!({})),
            ("send_to_peer", serde_json::json!({"to": "ben", "message": "hello"})),
        ] {
            let params = serde_json::json!({"name": tool, "arguments": arguments});
            let said = model.request("tools/call", params).await.to_string();
            assert!(!said.contains(SECRET), "{tool}: {said}");
        }
        let said = fs_err::read_to_string(&errors).unwrap();
        assert!(!said.contains(SECRET), "{said}");
    }
}

/// Notes what comes on a subject, as another runtime would read it.
struct Tap(tokio::sync::mpsc::Sender<Value>);

impl MessageHandler for Tap {
    fn deliver(&self, _: &str, publication: Publication, _: Option<&str>) -> Result<(), PublicationRefused> {
        let Publication::Raw(bytes) = publication else { panic!("over NATS there are bytes") };
        self.0.try_send(serde_json::from_slice(&bytes).unwrap()).unwrap();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_of_a_nexo_runtime_gets_its_events_by_its_id_from_the_command_line_and_from_a_model() {
    let nats = NatsServer::start();
    let home = tempfile::tempdir().unwrap();
    let runtime = LivePeers::connect(nats.options()).await.unwrap();
    // It listens, and is announced nowhere.
    let goal = GoalId(uuid::Uuid::from_u128(7));
    let subject = amb_live::inbox_subject(goal);
    let (tap, mut events) = tokio::sync::mpsc::channel(16);
    let _listening = runtime.broker().subscribe(&subject, Arc::new(Tap(tap))).await.unwrap();
    assert_eq!(peers(&nats).await, Vec::<String>::new());

    for address in [goal.to_string(), format!("planner/{goal}")] {
        run(&nats, "ann", &["peer", "send", &address, "ready", "--envelope", "nexo"]).await;
        let event = soon(events.recv()).await.unwrap();
        assert_eq!((&event["topic"], &event["source"]), (&subject.as_str().into(), &"ann".into()), "{event}");
        assert!(event["id"].is_string() && event["timestamp"].is_string(), "{event}");
        let payload = &event["payload"];
        assert_eq!((&payload["from_agent_id"], &payload["body"]), (&"ann".into(), &"ready".into()), "{event}");
        let to = address.split('/').next().unwrap();
        assert_eq!(payload["to_agent_id"], to, "{event}");
    }
    run(&nats, "ann", &["peer", "send", &goal.to_string(), "bare"]).await;
    assert_eq!(soon(events.recv()).await.unwrap()["body"], "bare");

    let mut command = crate::mcp_client::amb(home.path());
    command.arg("--dir").arg(home.path().join("mail"));
    command.args(["--as", "ben", "mcp", "--nats-url", &nats.url(), "--envelope", "nexo"]);
    let mut ben = crate::mcp_client::Model::start(&mut command).await;
    let note = serde_json::json!({"to": goal.to_string(), "message": "from a model"});
    let sent = ben.call("send_to_peer", note).await;
    assert_eq!(sent["delivered_to"], serde_json::json!([goal]), "{sent}");
    let event = soon(events.recv()).await.unwrap();
    assert_eq!(event["payload"]["body"], "from a model", "{event}");
    let from = event["payload"]["from_goal_id"].as_str().unwrap().to_owned();

    // It answers in its own form, to the goal that wrote, and the model sees which of its goals to answer.
    let answer = serde_json::json!({
        "id": uuid::Uuid::from_u128(8), "timestamp": "2026-04-30T14:00:00Z", "topic": subject, "source": "planner",
        "session_id": null,
        "payload": {"from_agent_id": "planner", "from_goal_id": goal, "to_agent_id": "ben", "body": "thanks", "sent_at": "2026-04-30T14:00:00Z"},
    });
    let bytes = Publication::Raw(answer.to_string().into_bytes().into());
    runtime.broker().publish(&format!("agent.inbox.{from}"), bytes).await.unwrap();
    let told = ben.call("mailbox_wait", serde_json::json!({"timeout_seconds": 50})).await;
    assert_eq!(
        (&told["peer_messages"][0]["body"], &told["peer_messages"][0]["from_goal_id"]),
        (&"thanks".into(), &serde_json::json!(goal))
    );
    assert!(told["peer_note"].as_str().unwrap().contains("never instructions"), "{told}");
}
