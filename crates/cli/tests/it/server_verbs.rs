//! Verbs of the command line at a server, each a process of its own.

use std::process::{Output, Stdio};
use std::time::Duration;

use amb_core::{Draft, Mailbox};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::mcp_client::amb;
use crate::server_office::{Office, serve_command, soon};

/// A user's home, and a server.
struct Machine {
    home: TempDir,
    office: Office,
}

impl Machine {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With these arguments for the server.
    async fn with(args: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = serve_command(&format!("sqlite:{}", home.path().join("mail.db").display()));
        command.args(args);
        Self { office: Office::start_with(command).await, home }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = amb(self.home.path());
        command.args(["--server", &self.office.url("")]).args(args);
        command
    }

    async fn run(&self, args: &[&str]) -> Output {
        soon(self.command(args).output()).await.unwrap()
    }

    /// What a command that must succeed wrote to stdout.
    async fn does(&self, args: &[&str]) -> String {
        let ended = self.run(args).await;
        assert!(ended.status.success(), "{args:?}: {}", said(&ended));
        String::from_utf8(ended.stdout).unwrap()
    }

    async fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.does(&[args, &["--json"]].concat()).await).unwrap()
    }

    /// Registers agents, and connects the first with each other.
    async fn agents(&self, names: &[&str]) {
        for name in names {
            self.does(&["register", name]).await;
        }
        for other in &names[1..] {
            let code = self.does(&["--as", names[0], "connect", other]).await;
            self.does(&["--as", other, "approve", code.trim()]).await;
        }
    }

    fn key(&self, name: &str) -> String {
        let keys = fs_err::read_to_string(self.home.path().join(".config/amb/keys.json")).unwrap();
        let keys: Value = serde_json::from_str(&keys).unwrap();
        find(&keys, name).unwrap_or_else(|| panic!("no key of {name}")).to_owned()
    }
}

/// The text under this name, wherever it is.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    let fields = value.as_object()?;
    fields.get(name).and_then(Value::as_str).or_else(|| fields.values().find_map(|inner| find(inner, name)))
}

fn said(ended: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_made_joined_written_to_and_left() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben", "eve"]).await;
    let made = machine.json(&["--as", "ann", "group", "create", "crew"]).await;
    assert_eq!((&made["name"], &made["owner"]), (&json!("crew"), &json!("ann")));
    for member in ["ben", "eve"] {
        let invited = machine.does(&["--as", "ann", "group", "invite", "crew", member]).await;
        assert!(invited.contains(&format!("{member} (invited)")), "{invited}");
        machine.does(&["--as", member, "group", "join", "crew"]).await;
    }
    let listed = machine.json(&["--as", "ben", "group", "list"]).await;
    let members: Vec<_> = listed[0]["members"].as_array().unwrap().iter().map(|member| &member["name"]).collect();
    assert_eq!(members, ["ann", "ben", "eve"]);
    machine.does(&["--as", "ann", "send", "crew", "standup in five minutes", "--subject", "Standup"]).await;
    for member in ["ben", "eve"] {
        assert!(machine.does(&["--as", member, "inbox"]).await.contains("standup in five minutes"));
    }
    let left = machine.json(&["--as", "ben", "group", "leave", "crew"]).await;
    assert_eq!(left["members"].as_array().unwrap().len(), 2, "{left}");
    let removed = machine.json(&["--as", "ann", "group", "remove", "crew", "eve"]).await;
    assert_eq!(removed["members"].as_array().unwrap().len(), 1, "{removed}");
    let refused = machine.run(&["--as", "ben", "group", "invite", "crew", "eve"]).await;
    assert!(!refused.status.success(), "{}", said(&refused));
    let directory = soon(amb(machine.home.path()).args(["--dir", "mail", "group", "list"]).output()).await.unwrap();
    assert_eq!(directory.status.code(), Some(7), "{}", said(&directory));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_registration_needs_a_token_it_is_given_by_flag_or_environment() {
    const TOKEN: &str = "s3cret-token";
    let machine = Machine::with(&["--registration-token", TOKEN]).await;
    let refused = machine.run(&["register", "ann"]).await;
    assert!(refused.status.code() == Some(4) && said(&refused).contains("--registration-token"), "{}", said(&refused));
    let wrong = machine.run(&["register", "ann", "--registration-token", "guess"]).await;
    assert!(wrong.status.code() == Some(4) && said(&wrong).contains("ask its operator"), "{}", said(&wrong));
    let given = machine.run(&["register", "ann", "--registration-token", TOKEN]).await;
    assert!(given.status.success() && !said(&given).contains(TOKEN), "{}", said(&given));
    let mut by_environment = machine.command(&["register", "ben"]);
    let ended = soon(by_environment.env("AMB_REGISTRATION_TOKEN", TOKEN).output()).await.unwrap();
    assert!(ended.status.success(), "{}", said(&ended));

    let init = ["--as", "claude-1", "init", "claude-code", "--scope", "user"];
    let refused = machine.run(&init).await;
    assert!(!refused.status.success() && said(&refused).contains("token"), "{}", said(&refused));
    let ended = soon(machine.command(&init).env("AMB_REGISTRATION_TOKEN", TOKEN).output()).await.unwrap();
    assert!(ended.status.success() && !said(&ended).contains(TOKEN), "{}", said(&ended));
    let agents = machine.json(&["--as", "ann", "agents"]).await;
    let names: Vec<_> = agents["agents"].as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect();
    assert_eq!(names, ["ann", "ben", "claude-1"]);
    for file in [".claude.json", ".config/amb/keys.json"] {
        let text = fs_err::read_to_string(machine.home.path().join(file)).unwrap();
        assert!(!text.contains(TOKEN), "{file}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_code_of_a_waiting_request_is_shown_to_whoever_asks_for_it_and_no_terminal_else() {
    let machine = Machine::new().await;
    for name in ["ann", "ben"] {
        machine.does(&["register", name]).await;
    }
    let code = machine.does(&["--as", "ann", "connect", "ben", "approve me"]).await.trim().to_owned();
    assert!(machine.does(&["--as", "ann", "connections"]).await.contains(&code), "who asked can pass it on later");
    assert!(!machine.does(&["--as", "ben", "connections", "--json"]).await.contains(&code));
    let inbox = machine.run(&["--as", "ben", "inbox"]).await;
    assert!(inbox.status.success() && !said(&inbox).contains(&code), "{}", said(&inbox));
    assert!(said(&inbox).contains("approve me") && said(&inbox).contains("--show-codes"), "{}", said(&inbox));
    assert!(machine.does(&["--as", "ben", "inbox", "--show-codes"]).await.contains(&code));
    let pending = machine.json(&["--as", "ben", "inbox"]).await["pending_connections"][0].clone();
    let whole = (&pending["from_agent_name"], &pending["verification_code"]);
    assert_eq!(whole, (&json!("ann"), &json!(code)), "the contract's document is whole");

    let watch = ["--as", "ben", "watch", "--since", "0", "--count", "1"];
    let heard = machine.run(&watch).await;
    assert!(said(&heard).contains("ann wants to connect") && !said(&heard).contains(&code), "{}", said(&heard));
    assert!(said(&heard).contains("--show-codes"), "{}", said(&heard));
    assert_eq!(machine.json(&watch).await["verification_code"], *code);
    assert!(machine.does(&[&watch[..], &["--show-codes"]].concat()).await.contains(&code));
    machine.does(&["--as", "ben", "approve", &code]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_of_more_threads_than_a_page_has_is_shown_whole() {
    const THREADS: usize = 520;
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    let ann = crate::server_office::Agent { name: "ann".into(), key: machine.key("ann") };
    let sends = (0..THREADS).map(|number| {
        let body = json!({"to": "ben", "subject": format!("Plan {number}"), "content": "hello"});
        machine.office.post(&ann, "/messages/send", body)
    });
    let sent: Vec<_> = futures_util::stream::iter(sends).buffer_unordered(32).collect().await;
    sent.into_iter().for_each(|answer| drop(answer.expect(201)));
    let inbox = machine.json(&["--as", "ben", "inbox"]).await;
    let mut subjects: Vec<_> =
        inbox["sessions"].as_array().unwrap().iter().map(|session| session["subject"].to_string()).collect();
    subjects.sort();
    subjects.dedup();
    assert_eq!(subjects.len(), THREADS);
    assert!(inbox.get("next").is_none(), "there is no more");
    let text = machine.does(&["--as", "ben", "inbox", "--unread"]).await;
    assert_eq!(text.lines().count(), THREADS + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_with_a_deadline_from_now_can_be_sent_again_under_its_key() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    let send = ["--as", "ann", "send", "ben", "sort the files", "--subject", "Work", "--kind", "task"];
    let send = [&send[..], &["--deadline", "2h", "--idempotency-key", "k-1"]].concat();
    let first = machine.json(&send).await;
    assert_eq!(machine.json(&send).await, first);
    let tasks = machine.json(&["--as", "ben", "task", "list"]).await;
    let tasks = tasks.as_array().or_else(|| tasks["tasks"].as_array()).unwrap().clone();
    assert_eq!(tasks.len(), 1);
    assert!(tasks[0]["deadline"].is_string(), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transcript_is_shared_and_taken_back() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    machine.does(&["register", "eve"]).await;
    let append = |who: &'static str, text: &'static str| {
        ["--as", who, "transcript", "append", "chat:1", text, "--role", "user", "--sender", who]
    };
    machine.does(&append("ann", "shall we ship?")).await;
    for expected in ["appended", "already there"] {
        let heard = machine.run(&[&append("ann", "heard")[..], &["--message-id", "om_1"]].concat()).await;
        assert!(heard.status.success() && said(&heard).contains(expected), "{}", said(&heard));
    }
    let read = ["--as", "ben", "transcript", "recent", "chat:1", "--owner", "ann"];
    assert_eq!(machine.run(&read).await.status.code(), Some(3));
    machine.does(&["--as", "ann", "transcript", "share", "chat:1", "ben"]).await;
    assert!(machine.does(&read).await.contains("shall we ship?"));
    let write = [&append("ben", "yes")[..], &["--owner", "ann"]].concat();
    assert_eq!(machine.run(&write).await.status.code(), Some(4), "it may only read");
    machine.does(&["--as", "ann", "transcript", "share", "chat:1", "ben", "write"]).await;
    machine.does(&write).await;
    assert!(machine.does(&read).await.contains("yes"));
    machine.does(&["--as", "ann", "transcript", "share", "chat:1", "ben", "none"]).await;
    assert_eq!(machine.run(&read).await.status.code(), Some(3));
    let stranger = machine.run(&["--as", "ann", "transcript", "share", "chat:1", "eve"]).await;
    assert_eq!(stranger.status.code(), Some(4), "{}", said(&stranger));
    let files = ["--dir", "mail", "--as", "ann", "transcript", "share", "chat:1", "ben"];
    let files = soon(amb(machine.home.path()).args(files).output()).await.unwrap();
    assert_eq!(files.status.code(), Some(7), "{}", said(&files));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transcript_at_a_server_is_followed() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    let append = ["--as", "ann", "transcript", "append", "chat:1", "new", "--role", "user", "--sender", "ann"];
    machine.does(&["--as", "ann", "transcript", "append", "chat:1", "old", "--role", "user", "--sender", "ann"]).await;
    machine.does(&["--as", "ann", "transcript", "share", "chat:1", "ben"]).await;
    for (me, flags) in [("ann", &[][..]), ("ben", &["--owner", "ann"])] {
        let mut follow = machine.command(&[&["--as", me, "transcript", "follow", "chat:1"], flags].concat());
        let mut follow = follow.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        // Lines that were written before it has read where the transcript ends are not shown.
        let line = soon(async {
            loop {
                machine.does(&append).await;
                if let Ok(line) = tokio::time::timeout(Duration::from_secs(1), lines.next_line()).await {
                    return line.unwrap().unwrap();
                }
            }
        })
        .await;
        assert_eq!(line, "ann (user): new");
    }
    let unshared = ["--as", "ben", "transcript", "follow", "chat:2", "--owner", "ann"];
    assert_eq!(machine.run(&unshared).await.status.code(), Some(3));
}

#[tokio::test]
async fn the_log_of_a_server_is_shown_however_long_it_is() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    let url = machine.office.url("").parse().unwrap();
    let ann = amb_client::Client::open(url, machine.key("ann").into()).await.unwrap();
    for number in 0..125 {
        ann.send(Draft::text("ben".parse().unwrap(), "Plan", format!("word {number}"))).await.unwrap();
    }
    let told = machine.does(&["--as", "ben", "log"]).await;
    assert!(told.lines().last().unwrap().contains("word 124"), "{told}");
    let all = machine.does(&["--as", "ben", "log", "--limit", "1000", "--kind", "message"]).await;
    assert_eq!(all.lines().count(), 125, "{all}");
}

#[tokio::test]
async fn registering_again_leaves_of_the_card_what_no_option_changes() {
    let machine = Machine::new().await;
    machine.does(&["register", "ann"]).await;
    let first = ["register", "ben", "--allow-from", "ann", "--max-concurrent-tasks", "1", "--capability", "rust"];
    machine.does(&first).await;
    for (again, description) in [(&["register", "ben"][..], ""), (&["register", "ben", "--description", "new"], "new")]
    {
        let card = machine.json(again).await;
        assert_eq!((&card["allow_from"], &card["capabilities"]), (&json!(["ann"]), &json!(["rust"])), "{card}");
        assert_eq!((&card["max_concurrent_tasks"], &card["description"]), (&json!(1), &json!(description)), "{card}");
    }
    let card = machine.json(&["register", "ben", "--allow-from", "*"]).await;
    assert_eq!(card["allow_from"], json!(["*"]));
}

#[tokio::test]
async fn a_list_of_tasks_that_is_cut_says_so() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    let url = machine.office.url("").parse().unwrap();
    let ann = amb_client::Client::open(url, machine.key("ann").into()).await.unwrap();
    let ask = async |count: usize| {
        for number in 0..count {
            ann.send(Draft::task("ben".parse().unwrap(), "Work", format!("piece {number}"))).await.unwrap();
        }
    };
    ask(130).await;
    let list = ["--as", "ben", "task", "list"];
    let ended = machine.run(&list).await;
    assert_eq!(ended.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 131, "with the head");
    assert!(ended.stderr.is_empty(), "{}", said(&ended));
    ask(380).await;
    let ended = machine.run(&list).await;
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.contains("the newest 500") && told.contains("--open"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_send_says_what_the_sender_can_do() {
    let machine = Machine::new().await;
    machine.agents(&["ann", "ben"]).await;
    for name in ["eve", "fay"] {
        machine.does(&["register", name]).await;
    }
    let late = ["--as", "ann", "send", "ben", "x", "--kind", "task", "--deadline", "2026-01-01T00:00:00Z"];
    let rejected = String::from_utf8(machine.run(&late).await.stdout).unwrap();
    assert!(rejected.contains("was rejected") && rejected.contains("has passed"), "{rejected}");
    for id in ["1234", "0199c0de-1a2b-7"] {
        let refused = machine.run(&["--as", "ann", "ack", id]).await;
        assert!(refused.status.code() == Some(3) && said(&refused).contains("no message"), "{}", said(&refused));
    }

    machine.does(&["--as", "ann", "connect", "eve"]).await;
    let refused = machine.run(&["--as", "ann", "send", "eve", "x"]).await;
    let pending = "waits for approval";
    assert!(refused.status.code() == Some(4) && said(&refused).contains(pending), "{}", said(&refused));

    machine.does(&["--as", "ben", "connections", "block", "ann"]).await;
    let refused = machine.run(&["--as", "ben", "send", "ann", "x"]).await;
    let blocked = "you have blocked ann";
    assert!(refused.status.code() == Some(4) && said(&refused).contains(blocked), "{}", said(&refused));
    let refused = machine.run(&["--as", "ann", "send", "ben", "x"]).await;
    assert!(said(&refused).contains("no active connection"), "a block stays hidden: {}", said(&refused));
    let refused = machine.run(&["--as", "ann", "connect", "ben"]).await;
    let words = said(&refused);
    assert!(refused.status.code() == Some(4) && !words.contains("allow_from"), "{words}");
}
