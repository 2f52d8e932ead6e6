//! Live goals in processes of their own, through the binary.

use std::process::{Output, Stdio};
use std::time::Duration;

use amb_live::testing::NatsServer;
use amb_live::{LivePeers, NatsOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
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
    // Whoever comes first decides how long a dead process is listed: a short time, for this story.
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

    ben.start_kill().unwrap();
    soon(ben.wait()).await.unwrap();
    // Perhaps listed yet, but a send knows better at once.
    let sent = soon(amb(&nats, "ann", &["--json", "peer", "send", "ben", "still there?"]).output()).await.unwrap();
    assert_eq!(sent.status.code(), Some(3), "a script must see that nobody was reached");
    let report: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(report["delivered_to"], serde_json::json!([]), "{report}");
    assert_eq!(report["unreachable_reasons"].as_array().unwrap().len(), 1, "{report}");
    soon(async { while !peers(&nats).await.is_empty() {} }).await;
}
