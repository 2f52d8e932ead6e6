//! Two processes of the operating system. The second one is this test binary again, running `child` below.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use amb_live::{LivePeers, NatsOptions, list_peers};

use crate::world::{bodies, join, name, soon, until};
use amb_testing::NatsServer;

const CHILD: &str = "AMB_TEST_CHILD_NATS_URL";
const EXPIRY: Duration = Duration::from_secs(2);

fn options(url: &str) -> NatsOptions {
    NatsOptions { expiry: EXPIRY, ack_timeout: Duration::from_secs(5), ..NatsOptions::new(url) }
}

/// Not a test by itself: the other process. It joins as bob and answers every message until its input ends.
#[test]
fn child() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let peers = LivePeers::connect(options(&url)).await.unwrap();
        let bob = join(&peers, "bob").await;
        println!("\njoined");
        let end = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
        let answer = async {
            loop {
                let batch = bob.next().await;
                for message in &*batch {
                    let id = message.correlation_id.map(|id| id.to_string());
                    let body = format!("echo: {}", message.body);
                    let report = peers.send(&bob, &message.from_agent_id, &body, id.as_deref()).await.unwrap();
                    println!("answered {}", report.delivered_to.len());
                }
                batch.confirm();
            }
        };
        tokio::select! {
            () = answer => {}
            _ = end => {}
        }
        bob.leave().await.unwrap();
    });
    std::process::exit(0);
}

struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(server: &NatsServer) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture", "--test-threads", "1"])
            .env(CHILD, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut other = Self { child, input, output };
        other.wait_for("joined");
        other
    }

    fn wait_for(&mut self, wanted: &str) {
        let found = self.output.by_ref().map_while(Result::ok).any(|line| line.trim() == wanted);
        assert!(found, "the other process ended before it said {wanted:?}");
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn goals_of_two_processes_see_and_message_each_other_and_a_killed_one_is_gone_within_the_expiry() {
    let server = NatsServer::start();
    let mut other = Other::start(&server);
    let peers = LivePeers::connect(options(&server.url())).await.unwrap();
    let alice = join(&peers, "alice").await;
    assert_eq!(list_peers(&peers.context(&alice)).peers[0].agent_id, name("bob"));
    let id = "7a3b2f00-1c2d-4e5f-8a9b-0c1d2e3f4a5b";
    let report = peers.send(&alice, "bob", "hello over there", Some(id)).await.unwrap();
    assert_eq!(report.delivered_to.len(), 1, "{report:?}");
    let batch = soon("the answer", alice.next()).await;
    assert_eq!(bodies(&batch), ["echo: hello over there"]);
    assert_eq!(batch[0].correlation_id.unwrap().to_string(), id);
    batch.confirm();
    other.wait_for("answered 1");

    other.kill();
    // Still listed for a while, but no send reports a delivery, and once the server has noticed, the error says why.
    soon("a send knows", async {
        loop {
            let report = peers.send(&alice, "bob", "still there?", None).await.unwrap();
            assert!(report.delivered_to.is_empty(), "{report:?}");
            if !report.unreachable_reasons.is_empty() {
                break;
            }
        }
    })
    .await;
    until("bob is no longer listed", || list_peers(&peers.context(&alice)).peers.is_empty()).await;
}

#[tokio::test]
async fn a_process_that_shuts_down_is_unlisted_at_once() {
    let server = NatsServer::start();
    let mut other = Other::start(&server);
    // The expiry is far longer than this test: bob is gone because he withdrew.
    let peers = LivePeers::connect(options(&server.url())).await.unwrap();
    assert_eq!(peers.peers().len(), 1);
    if let Some(mut input) = other.input.take() {
        input.write_all(b"end\n").unwrap();
    }
    assert!(other.child.wait().unwrap().success());
    until("bob is no longer listed", || peers.peers().is_empty()).await;
}
