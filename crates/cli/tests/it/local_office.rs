//! `amb up`, `amb down`, `amb status`, and verbs that find the office by themselves.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::mcp_client::Model;
use crate::server_office::soon;

/// A user with a home of its own, and so a local office of its own, which ends with the test.
pub(crate) struct Home {
    pub(crate) root: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut amb = Command::new(env!("CARGO_BIN_EXE_amb"));
        let runtime = self.root.path().join("run");
        fs_err::create_dir_all(&runtime).unwrap();
        amb.env_clear().env("HOME", self.root.path()).env("XDG_RUNTIME_DIR", runtime);
        amb.current_dir(self.root.path()).stdin(Stdio::null()).kill_on_drop(true).args(arguments);
        amb
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        soon(self.command(arguments).output()).await.unwrap()
    }

    /// The stdout of a verb that must succeed.
    pub(crate) async fn amb(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments).await;
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        serde_json::from_str(&self.amb(&all).await).unwrap()
    }

    /// The exit code and stderr of a verb that must fail.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let ended = self.run(arguments).await;
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    }

    fn data(&self) -> PathBuf {
        self.root.path().join(".local/share/amb")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut down = std::process::Command::new(env!("CARGO_BIN_EXE_amb"));
        down.env_clear().env("HOME", self.root.path()).env("XDG_RUNTIME_DIR", self.root.path().join("run"));
        let _ = down.arg("down").output();
    }
}

fn pid(office: &Value) -> Pid {
    Pid::from_raw(i32::try_from(office["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn up_starts_an_office_that_verbs_find_and_down_ends_it() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    assert_eq!((&up["running"], &up["ready"], &up["started"]), (&true.into(), &true.into(), &true.into()), "{up}");
    assert!(up["dashboard"]["url"].as_str().unwrap().starts_with(up["url"].as_str().unwrap()), "{up}");
    assert!(up["store"].as_str().unwrap().starts_with(home.root.path().to_str().unwrap()), "{up}");
    home.amb(&["register", "ann"]).await;
    home.amb(&["register", "ben"]).await;
    let again = home.json(&["up"]).await;
    assert_eq!((&again["url"], &again["pid"], &again["started"]), (&up["url"], &up["pid"], &false.into()));
    let agents = home.amb(&["--as", "ann", "agents"]).await;
    assert!(agents.contains("ben"), "{agents}");
    let text = home.amb(&["status"]).await;
    assert!(text.contains(up["url"].as_str().unwrap()) && text.contains("mailbox.db"), "{text}");
    assert!(home.amb(&["down"]).await.contains("is stopped"));
    let (code, words) = home.refused(&["status"]).await;
    assert!(code == 3 && words.contains("amb up"), "{code} {words}");
    let (code, words) = home.refused(&["--as", "ann", "inbox"]).await;
    assert!(code == 3 && words.contains("`amb up`"), "{code} {words}");
    let ended = home.json(&["down"]).await;
    assert_eq!((&ended["running"], &ended["ended"]), (&false.into(), &false.into()), "nothing to end is no error");
}

#[tokio::test]
async fn two_ups_at_once_start_one_office() {
    let home = Home::new();
    let (up, up_too) = (["up"], ["up"]);
    let (one, other) = tokio::join!(home.json(&up), home.json(&up_too));
    assert_eq!((&one["pid"], &one["url"]), (&other["pid"], &other["url"]));
    assert_ne!(one["started"], other["started"], "{one} {other}");
}

#[tokio::test]
async fn a_killed_office_is_not_running_and_restarts_at_the_same_address() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    kill_process(pid(&up), Signal::KILL).unwrap();
    // The lock is released when the process ends, shortly after the signal.
    let gone = async {
        while home.run(&["status"]).await.status.code() != Some(3) {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;
    let again = home.json(&["up"]).await;
    assert_ne!(again["pid"], up["pid"]);
    assert_eq!(again["started"], true);
    home.amb(&["--as", "ann", "inbox"]).await;
}

#[tokio::test]
async fn up_during_the_end_of_the_office_waits_and_starts_it() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    let address = up["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    // A request in progress, for which the office waits before it ends.
    let mut client = TcpStream::connect(&address).await.unwrap();
    let head = "POST /agents/register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    client.write_all(head.as_bytes()).await.unwrap();
    home.json(&["status"]).await;
    kill_process(pid(&up), Signal::TERM).unwrap();
    while TcpStream::connect(&address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let again = home.command(&["--json", "up"]).stdout(Stdio::piped()).spawn().unwrap();
    // It holds its lock from before it looks for the office.
    let lock = fs_err::read_dir(home.root.path().join("run/amb")).unwrap().map(|entry| entry.unwrap().path());
    let lock = lock.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "up")).unwrap();
    let lock = fs_err::File::open(lock).unwrap().into_file();
    while lock.try_lock_shared().is_ok() {
        lock.unlock().unwrap();
        tokio::task::yield_now().await;
    }
    drop(client);
    let again = soon(again.wait_with_output()).await.unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&again["started"], &again["ready"]), (&true.into(), &true.into()), "{again}");
    assert_ne!(home.json(&["status"]).await["pid"], up["pid"]);
}

#[tokio::test]
async fn a_client_follows_the_local_office_to_another_port() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    let url = up["url"].as_str().unwrap();
    home.amb(&["init", "cursor", "--as", "ann"]).await;
    home.amb(&["--server", url, "init", "gemini", "--as", "ann", "--scope", "project"]).await;
    home.amb(&["down"]).await;
    let config: Value =
        serde_json::from_slice(&fs_err::read(home.root.path().join(".cursor/mcp.json")).unwrap()).unwrap();
    let server = config["mcpServers"]["mailbox"].clone();
    assert_eq!(server["args"], serde_json::json!(["mcp", "--office", "local", "--as", "ann"]), "{server}");
    // As a client that passes on only the variables in its file.
    let mut client = tokio::process::Command::new(server["command"].as_str().unwrap());
    client.args(server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
    client.env_clear().env("HOME", home.root.path()).kill_on_drop(true);
    for (name, value) in server["env"].as_object().unwrap() {
        client.env(name, value.as_str().unwrap());
    }
    let mut model = Model::start(&mut client).await;
    let down = model.request("tools/call", serde_json::json!({"name": "mailbox_check", "arguments": {}})).await;
    assert!(down.to_string().contains("the local office does not run"), "{down}");
    // Bound by this test, or by another process before it.
    let _taken = tokio::net::TcpListener::bind(url.strip_prefix("http://").unwrap()).await;
    let moved = home.json(&["up"]).await;
    assert_ne!(moved["url"], up["url"]);
    let there = model.request("tools/call", serde_json::json!({"name": "mailbox_check", "arguments": {}})).await;
    assert_ne!(there["isError"], true, "{there}");
    let ended = home.run(&["--as", "ann", "doctor"]).await;
    let told = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.code() == Some(1) && told.contains("amb init gemini --as ann"), "{told}");
    assert!(!told.contains("amb init cursor"), "{told}");
}

#[tokio::test]
async fn a_verb_for_directories_says_so_beside_a_local_office() {
    let home = Home::new();
    home.json(&["up"]).await;
    let (code, words) = home.refused(&["archive", "--dry-run"]).await;
    assert!(code == 7 && words.contains("--dir PATH"), "{code} {words}");
}

#[tokio::test]
async fn where_the_port_is_taken_the_office_and_its_keys_move_to_another() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    home.amb(&["down"]).await;
    let address = up["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    // Bound by this test, or by another process before it.
    let _taken = tokio::net::TcpListener::bind(&address).await;
    let moved = home.json(&["up"]).await;
    assert_ne!(moved["url"], up["url"]);
    home.amb(&["--as", "ann", "inbox"]).await;
    let keys = fs_err::read_to_string(home.root.path().join(".config/amb/keys.json")).unwrap();
    assert!(!keys.contains(&format!("{address}\"")), "whoever listens there now is shown no key: {keys}");
}

#[tokio::test]
async fn the_household_of_a_new_database_is_joined_also_where_the_port_has_changed() {
    let home = Home::new();
    let up = home.json(&["up"]).await;
    home.amb(&["down"]).await;
    fs_err::remove_file(up["store"].as_str().unwrap()).unwrap();
    // Bound by this test, or by another process before it.
    let _taken = tokio::net::TcpListener::bind(up["url"].as_str().unwrap().strip_prefix("http://").unwrap()).await;
    let moved = home.json(&["up"]).await;
    assert_ne!(moved["url"], up["url"]);
    home.amb(&["register", "ann"]).await;
    let household = home.json(&["household"]).await;
    assert!(household["members"].as_array().unwrap().iter().any(|member| member["name"] == "ann"), "{household}");
}

#[tokio::test]
async fn an_office_that_cannot_start_shows_the_end_of_its_log() {
    let home = Home::new();
    fs_err::create_dir_all(home.data().join("mailbox.db")).unwrap();
    let (code, words) = home.refused(&["up"]).await;
    assert_eq!(code, 6, "{words}");
    assert!(words.contains("office.log") && words.contains("mailbox.db"), "{words}");
    assert_eq!(home.run(&["status"]).await.status.code(), Some(3));
}

#[tokio::test]
async fn the_environment_of_a_project_does_not_change_what_the_local_office_is() {
    let home = Home::new();
    let mut up = home.command(&["--json", "up"]);
    up.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none").env("AMB_LISTEN", "127.0.0.1:1");
    let up: Value = serde_json::from_slice(&soon(up.output()).await.unwrap().stdout).unwrap();
    assert!(up["store"].as_str().unwrap().ends_with("mailbox.db"), "{up}");
}

#[tokio::test]
async fn verbs_take_the_office_that_is_named_before_the_one_that_runs() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    let mail = home.root.path().join("mail");
    let mail = mail.to_str().unwrap();
    let register = home.amb(&["--dir", mail, "register", "cod"]).await;
    assert!(register.contains("directory"), "{register}");
    let names = |document: Value| {
        let agents = document["agents"].as_array().unwrap().iter();
        agents.map(|agent| agent["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(home.json(&["--dir", mail, "agents"]).await), ["cod"]);
    let by_environment = soon(home.command(&["--json", "agents"]).env("AMB_DIR", mail).output()).await.unwrap();
    assert_eq!(names(serde_json::from_slice(&by_environment.stdout).unwrap()), ["cod"]);
    // A project's own mailbox takes precedence, too, and needs consent as always.
    let project = home.root.path().join("project");
    fs_err::create_dir_all(project.join(".chipset/state/mail")).unwrap();
    let mut within = home.command(&["agents"]);
    let within = soon(within.current_dir(&project).output()).await.unwrap();
    assert_eq!(within.status.code(), Some(2), "{}", String::from_utf8_lossy(&within.stderr));
    assert!(String::from_utf8_lossy(&within.stderr).contains("forged mail"));
    // nanobot's mailboxes come after it, and are used again once it has stopped.
    let nanobot = home.root.path().join(".nanobot/mailboxes");
    home.amb(&["--dir", nanobot.to_str().unwrap(), "register", "nano"]).await;
    let here = names(home.json(&["--as", "ann", "agents"]).await);
    assert!(here.contains(&"ann".to_owned()) && !here.contains(&"nano".to_owned()), "{here:?}");
    home.amb(&["down"]).await;
    assert_eq!(names(home.json(&["agents"]).await), ["nano"]);
}

#[tokio::test]
async fn the_person_acts_at_the_local_office_where_no_agent_is_named() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    home.amb(&["register", "ben"]).await;
    home.amb(&["send", "ann", "look at the failing test"]).await;
    let inbox = home.json(&["--as", "ann", "inbox"]).await;
    assert_eq!(inbox["sessions"][0]["other_agent_name"], "person", "{inbox}");
    home.amb(&["--as", "ann", "reply", "done"]).await;
    let mine = home.amb(&["read", "ann"]).await;
    assert!(mine.contains("look at the failing test") && mine.contains("done"), "{mine}");
    // Agents of the household need no code, and --as still selects the agent.
    home.amb(&["--as", "ann", "send", "ben", "hello"]).await;
    assert_eq!(home.json(&["--as", "ben", "inbox"]).await["sessions"][0]["other_agent_name"], "ann");
}

#[tokio::test]
async fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let home = Home::new();
    let (code, _) = home.refused(&["doctor"]).await;
    assert_eq!(code, 1, "no office is a problem");
    let told = String::from_utf8(home.run(&["doctor"]).await.stdout).unwrap();
    assert!(told.contains("`amb up`"), "{told}");
    home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    let well = home.json(&["--as", "ann", "doctor"]).await;
    let states: Vec<_> =
        well["checks"].as_array().unwrap().iter().map(|check| check["state"].as_str().unwrap()).collect();
    assert!(states.len() >= 4 && !states.contains(&"problem"), "{well}");
    // A client with a missing program, and keys that others can read.
    let keys = home.root.path().join(".config/amb/keys.json");
    fs_err::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs_err::write(home.root.path().join(".mcp.json"), r#"{"mcpServers":{"mailbox":{"command":"/gone/amb"}}}"#).unwrap();
    let ended = home.run(&["--as", "ann", "doctor"]).await;
    let told = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("chmod 600") && told.contains("amb init claude-code"), "{told}");
}

#[tokio::test]
async fn completions_and_manual_pages_are_made() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ann"]).await;
    let names = home.amb(&["--as", "ann", "complete", "agents"]).await;
    assert!(names.lines().any(|name| name == "ann"), "{names}");
    home.amb(&["down"]).await;
    assert_eq!(home.amb(&["complete", "agents"]).await, "", "a shell is told nothing rather than an error");
    home.amb(&["man", "pages"]).await;
    let page = fs_err::read_to_string(home.root.path().join("pages/amb-send.1")).unwrap();
    assert!(page.contains(".TH"), "{page}");
}

#[tokio::test]
async fn a_misspelt_verb_or_name_gets_a_suggestion() {
    let home = Home::new();
    for (wrong, near) in
        [(vec!["lgo"], "log"), (vec!["task", "lits"], "list"), (vec!["--json", "snd", "ben", "hi"], "send")]
    {
        let (code, words) = home.refused(&wrong).await;
        assert!(code == 2 && words.contains(&format!("'{near}'")), "{wrong:?}: {code} {words}");
    }
    home.json(&["up"]).await;
    home.amb(&["register", "ben"]).await;
    let (code, words) = home.refused(&["send", "bne", "hi"]).await;
    assert!(code == 4 && words.contains("did you mean \"ben\"?"), "{code} {words}");
}

#[tokio::test]
async fn a_runtime_directory_of_somebody_else_is_not_used() {
    let home = Home::new();
    // As `su` leaves it in the environment.
    let mut foreign = PathBuf::from("/usr");
    if rustix::process::geteuid().is_root() {
        foreign = home.root.path().join("foreign");
        fs_err::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(12_345), None).unwrap();
    }
    let verb = async |word: &str| {
        let ended = soon(home.command(&[word]).env("XDG_RUNTIME_DIR", &foreign).output()).await.unwrap();
        assert!(ended.status.success(), "{word}: {}", String::from_utf8_lossy(&ended.stderr));
    };
    for word in ["up", "status", "down"] {
        verb(word).await;
    }
    assert!(!foreign.join("amb").exists());
}

#[tokio::test]
async fn up_says_what_to_change_where_nothing_can_be_written() {
    let home = Home::new();
    // A file in place of the directory: not even root can create one there.
    fs_err::write(home.root.path().join(".local"), "").unwrap();
    let mut up = home.command(&["up"]);
    let ended = soon(up.env("XDG_RUNTIME_DIR", home.root.path().join("none")).output()).await.unwrap();
    let words = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(2) && words.contains("HOME") && words.contains("cannot be made"), "{words}");
}

#[tokio::test]
async fn transcripts_are_shared_files_beside_a_local_office_too() {
    let home = Home::new();
    home.amb(&["up"]).await;
    home.amb(&["register", "ann", "ben"]).await;
    home.amb(&["--as", "ann", "transcript", "append", "feishu:oc_1", "hi", "--role", "assistant", "--sender", "ann"])
        .await;
    let lines = home.json(&["--as", "ben", "transcript", "recent", "feishu:oc_1"]).await;
    assert_eq!(lines[0]["content"], "hi");
    assert!(home.root.path().join(".nanobot/transcripts/feishu_oc_1.jsonl").exists());
    let named = ["--office", "local", "--as", "ben", "transcript", "recent", "feishu:oc_1"];
    assert_eq!(home.refused(&named).await.0, 3, "an office that was named has transcripts of its own");
    let (code, words) = home.refused(&["--as", "ann", "transcript", "share", "feishu:oc_1", "ben"]).await;
    assert!(code == 7 && words.contains("files") && words.contains("--office local"), "{code} {words}");
}

#[tokio::test]
async fn an_export_without_any_office_says_how_to_get_one() {
    let (code, words) = Home::new().refused(&["--as", "ann", "export"]).await;
    assert!(code == 3 && words.contains("`amb up`"), "{code} {words}");
}

#[tokio::test]
async fn the_persons_name_is_chosen_when_the_office_first_starts() {
    let home = Home::new();
    home.json(&["up", "--person", "kim"]).await;
    assert_eq!(home.json(&["household"]).await["members"][0]["name"], "kim");
    for again in [&["up", "--person", "kim"][..], &["household", "person", "kim"]] {
        home.json(again).await;
    }
    for late in [&["up", "--person", "bea"][..], &["household", "person", "bea"]] {
        let (code, text) = home.refused(late).await;
        assert!(code == 5 && text.contains("you are kim at this office"), "{late:?}: {text}");
    }
    assert_eq!(home.json(&["household"]).await["members"].as_array().unwrap().len(), 1);
}
