//! The set-up prompt, followed to the letter: every command of docs/setup-prompt.md is run as it stands there.
//! `scripts/interop-setup` does the same with a real OpenClaw, whose commands are passed over here.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::mcp_client::{Model, amb};
use crate::server_office::{Office, soon};

const PAGE: &str = include_str!("../../../../docs/setup-prompt.md");
const INSTALL: &str = include_str!("../../../../docs/install.md");

/// What is said between backticks, in the order of the page.
fn spans(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|span| !span.is_empty()).collect()
}

/// The program that a line of shell runs.
fn program(command: &str) -> &str {
    command.split_whitespace().find(|word| !word.contains('=')).unwrap_or_default()
}

/// The prompt itself, and the notes around it.
fn prompt_and_notes() -> (&'static str, &'static str) {
    let (_, rest) = PAGE.split_once("````markdown\n").expect("a prompt to paste");
    rest.split_once("\n````\n").expect("an end of the prompt")
}

struct Machine {
    home: TempDir,
    office: Office,
}

impl Machine {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
        Self { home, office }
    }

    fn words(&self, command: &str) -> String {
        let server = self.office.url("");
        let command = command.replace("SERVER_URL", &server).replace("AGENT_NAME", "claw-1");
        command.replace("YOUR_CONTACT", "owner@example.com")
    }

    /// The command in a shell, with `amb` on the path, as an agent would run it.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let bin = Path::new(env!("CARGO_BIN_EXE_amb")).parent().unwrap().display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        shell.args(["-c", &self.words(command)]).current_dir(self.home.path()).kill_on_drop(true);
        shell.env_clear().env("PATH", path).env("HOME", self.home.path()).stdin(Stdio::null());
        shell
    }

    /// Runs a command that must succeed; returns all that it said.
    async fn run(&self, command: &str) -> String {
        let ended = soon(self.shell(command).output()).await.unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{command}: {said}");
        said
    }

    fn read(&self, file: &str) -> String {
        fs_err::read_to_string(self.home.path().join(file)).unwrap()
    }

    /// Starts what goes on running, waits for its first line, and ends it.
    async fn begins(&self, command: &str) -> String {
        // Without `exec` the shell would be ended and what it runs left behind.
        let command = match command.find("amb ") {
            Some(at) => format!("{}exec {}", &command[..at], &command[at..]),
            None => panic!("{command}"),
        };
        let mut child = self.shell(&command).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = soon(said.next_line()).await.unwrap().unwrap_or_else(|| panic!("{command} ended without a word"));
        child.kill().await.unwrap();
        line
    }
}

#[tokio::test]
async fn following_the_prompt_gives_a_working_mailbox() {
    let machine = Machine::new().await;
    let (prompt, _) = prompt_and_notes();
    fs_err::create_dir(machine.home.path().join(".openclaw")).unwrap();
    let theirs = "{\n  // mine\n  gateway: { mode: 'local', port: 18789 },\n}\n";
    fs_err::write(machine.home.path().join(".openclaw/openclaw.json"), theirs).unwrap();

    let commands: Vec<&str> = spans(prompt).into_iter().filter(|span| span.contains(' ')).collect();
    let (mut said, mut steps, mut undo) = (String::new(), BTreeSet::new(), None);
    for command in commands {
        match program(command) {
            "openclaw" => {
                steps.insert("openclaw");
            }
            "amb" if command.contains("--undo") => undo = Some(command),
            "amb" if command.contains(" bridge openclaw") => {
                let line = machine.begins(command).await;
                // No gateway runs here, so it is not bridged yet.
                assert!(line.contains("to OpenClaw at "), "{line}");
                steps.insert("bridge");
            }
            "amb" if command.contains("--dry-run") => {
                let shown = machine.run(command).await;
                assert_eq!(machine.read(".openclaw/openclaw.json"), theirs, "a dry run changes nothing");
                // "When I agree, run the same command without --dry-run."
                let done = machine.run(&command.replace(" --dry-run", "")).await;
                let lines = |text: &str| text.lines().filter(|line| line.starts_with('+')).count();
                assert_eq!(lines(&shown), lines(&done), "what was shown is what was done");
                said.push_str(&(shown + &done));
                steps.insert("init");
            }
            "amb" => {
                said.push_str(&machine.run(command).await);
                steps.extend(["register", "inbox"].into_iter().filter(|step| command.contains(step)));
            }
            "pip" | "uv" | "npm" | "cargo" => {
                assert!(INSTALL.contains(&format!("`{command}`")), "docs/install.md knows nothing of: {command}");
                steps.insert("install");
            }
            other => panic!("the prompt has a command of {other:?} that this test knows nothing of: {command}"),
        }
    }
    assert_eq!(steps, BTreeSet::from(["install", "register", "init", "inbox", "bridge", "openclaw"]));

    // No key and no comment was lost on the way.
    let config = machine.read(".openclaw/openclaw.json");
    let keys: Value = serde_json::from_str(&machine.read(".config/amb/keys.json")).unwrap();
    let key = find_key(&keys).expect("a kept key");
    assert!(!config.contains(&key) && !said.contains(&key), "the key is in a file of its own only");
    assert!(!config.contains("agents") && !config.contains("\"tools"), "{config}");
    assert!(config.contains("// mine") && config.contains("18789") && config.contains("chatCompletions"), "{config}");

    // The client starts what is written there, in an environment of its own, and the mailbox works both ways.
    let mut model = start_configured(machine.home.path(), &config).await;
    let tools: BTreeSet<String> = model.tools().await.into_iter().collect();
    let counted = format!("must count {} tools", tools.len());
    assert!(prompt.contains(&counted), "the prompt does not say: {counted}");
    let named = spans(prompt).into_iter().filter_map(|span| {
        let tool = span.strip_prefix("mailbox__").unwrap_or(span);
        tool.starts_with("mailbox_").then(|| tool.to_owned())
    });
    let unknown: Vec<_> = named.filter(|tool| !tools.contains(tool)).collect();
    assert!(unknown.is_empty(), "the prompt names tools that there are not: {unknown:?}");
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 0);
    let friend = machine.office.register("friend").await;
    let asked = model.call("mailbox_connect", json!({"target_agent_name": "friend"})).await;
    let code = json!({"verification_code": asked["verification_code"]});
    machine.office.post(&friend, "/connections/approve", code).await.expect(200);
    model.call("mailbox_send", json!({"to": "friend", "subject": "Hello", "content": "it works"})).await;
    let inbox = machine.office.get(&friend, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["other_agent_name"], "claw-1", "{inbox}");
    assert!(model.close().await.success());

    machine.run(undo.expect("a way back")).await;
    assert_eq!(machine.read(".openclaw/openclaw.json"), theirs, "everything is out again");
}

/// The only key of the only server, wherever it stands in the file.
fn find_key(keys: &Value) -> Option<String> {
    match keys {
        Value::String(text) => (text.len() > 20).then(|| text.clone()),
        Value::Object(fields) => fields.values().find_map(find_key),
        Value::Array(items) => items.iter().find_map(find_key),
        _ => None,
    }
}

/// Starts the server `mailbox` of an OpenClaw configuration.
async fn start_configured(home: &Path, config: &str) -> Model {
    // What `init` wrote is JSON; what was there before need not be.
    let quoted = |text: &str| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (_, server) = config.split_once("mailbox").expect("a server in the configuration");
    let command = server.split_once("command").expect("a command").1.split_once(':').unwrap().1;
    let arguments =
        server.split_once("args").expect("arguments").1.split_once('[').unwrap().1.split_once(']').unwrap().0;
    assert_eq!(quoted(command)[0], env!("CARGO_BIN_EXE_amb"));
    Model::start(amb(home).args(quoted(arguments))).await
}

#[tokio::test]
async fn the_commands_for_other_clients_are_valid() {
    let machine = Machine::new().await;
    let (_, notes) = prompt_and_notes();
    let mut clients = 0;
    for command in spans(notes).into_iter().filter(|span| program(span) == "amb" && span.contains(' ')) {
        if command.contains(" init ") {
            let who = if command.contains("--as") { "" } else { " --as AGENT_NAME --server SERVER_URL" };
            machine.run(&format!("{command}{who} --dry-run")).await;
            clients += 1;
        } else {
            machine.run(&format!("{command} --help")).await;
        }
    }
    assert!(clients >= 2, "the notes show how other clients are set up");
}
