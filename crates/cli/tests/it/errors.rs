//! Errors as a script sees them: exit codes, sentences, and documents with `--json`.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::mcp_client::amb;
use crate::server_office::soon;

/// A home with a directory of mail that has the agents ann, ben and dan.
struct World {
    home: TempDir,
}

impl World {
    async fn new() -> Self {
        let world = Self { home: tempfile::tempdir().unwrap() };
        let registered = world.run(&["register", "ann", "ben", "dan"], b"").await;
        assert_eq!(registered.0, 0, "{registered:?}");
        world
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = amb(self.home.path());
        command.env("AMB_DIR", self.home.path().join("mail")).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The exit code, stdout and stderr.
    async fn run(&self, arguments: &[&str], stdin: &[u8]) -> (i32, String, String) {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A command that has enough closes the pipe.
        let _ = input.write_all(stdin).await;
        drop(input);
        let ended = soon(child.wait_with_output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
    }

    async fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let (code, out, words) = self.run(arguments, b"").await;
        assert!(out.is_empty(), "{arguments:?}: {out}");
        (code, words)
    }
}

#[tokio::test]
async fn a_task_that_is_rejected_when_it_is_sent_is_reported_with_the_reason() {
    let world = World::new().await;
    let late = ["--as", "ann", "send", "ben", "x", "--kind", "task", "--deadline", "2026-01-01T00:00:00Z"];
    let (code, out, _) = world.run(&late, b"").await;
    assert!(code == 0 && out.contains("was rejected") && out.contains("has passed"), "{code} {out}");
    let (code, document, _) = world.run(&[&late[..], &["--json"]].concat(), b"").await;
    let sent: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((code, &sent["task"]["state"]), (0, &"rejected".into()), "{sent}");
    assert!(sent["reason"].as_str().unwrap().contains("has passed"), "{sent}");
}

#[tokio::test]
async fn an_unknown_message_is_not_found() {
    let world = World::new().await;
    for id in ["1234", "0199c0de-1a2b-7", "0199c0de-1a2b-7000-8000-000000000001"] {
        let (code, words) = world.refused(&["--as", "ann", "ack", id]).await;
        assert!(code == 3 && words.contains("no message"), "{id}: {code} {words}");
    }
}

#[tokio::test]
async fn times_are_instants_or_periods_in_every_command() {
    let world = World::new().await;
    for time in ["1h", "2026-11-18T12:00:00Z"] {
        let (code, words) = world.refused(&["--as", "ben", "search", "files", "--after", time, "--before", time]).await;
        assert!(code == 7 && words.contains("no search"), "a directory has none: {code} {words}");
    }
    for command in
        [&["search", "x", "--before"][..], &["search", "x", "--after"], &["export", "--since"], &["log", "--since"]]
    {
        let (code, words) = world.refused(&[command, &["2026-11-18"]].concat()).await;
        assert!(code == 2 && words.contains("a time such as"), "{command:?}: {code} {words}");
    }
}

#[tokio::test]
async fn an_error_in_a_file_keeps_its_lines() {
    let world = World::new().await;
    let config = world.home.path().join(".config/amb/config.toml");
    fs_err::create_dir_all(config.parent().unwrap()).unwrap();
    fs_err::write(&config, "as = \n").unwrap();
    let (code, words) = world.refused(&["inbox"]).await;
    assert!(code == 2 && words.contains("config.toml") && words.lines().count() > 2, "{code} {words}");
    assert!(!words.contains("U+000A"), "{words}");
}

#[tokio::test]
async fn suggestions_are_the_nearest_names_that_are_shown() {
    let world = World::new().await;
    let (_, words) = world.refused(&["--as", "ann", "read", "an"]).await;
    assert!(words.contains("did you mean \"ann\"?"), "{words}");
    let (code, words) = world.refused(&["delete"]).await;
    assert!(code == 2 && !words.contains("complete"), "{words}");
    let (code, words) = world.refused(&["household", "remove"]).await;
    assert!(code == 2 && words.contains("--machine"), "{words}");
}

#[tokio::test]
async fn with_json_a_wrong_argument_is_a_document_too() {
    let world = World::new().await;
    for (arguments, said) in [
        (&["--json", "sned"][..], "send"),
        (&["--json", "send"], "<TO>"),
        (&["inbox", "--json", "--no"], "--no"),
        (&["--json"], "--help"),
    ] {
        let (code, words) = world.refused(arguments).await;
        let error: Value = serde_json::from_str(&words).unwrap_or_else(|_| panic!("{arguments:?}: {words}"));
        assert_eq!((code, &error["error"]["code"]), (2, &"invalid".into()), "{error}");
        let detail = error["error"]["detail"].as_str().unwrap();
        assert!(detail.contains(said) && !detail.contains('\n') && !detail.contains("Usage"), "{detail}");
    }
    let (code, help, _) = world.run(&["--json", "send", "--help"], b"").await;
    assert!(code == 0 && help.contains("Usage:"), "{help}");
}

#[tokio::test]
async fn too_much_on_stdin_is_not_counted_wrongly() {
    let world = World::new().await;
    // The limit is within a character of the second text.
    for text in ["x".repeat(2_000_000), format!("x{}", "\u{e9}".repeat(1_000_000))] {
        let (code, _, words) = world.run(&["--as", "ann", "send", "ben", "-"], text.as_bytes()).await;
        assert!(code == 2 && words.contains("more than 1 MiB"), "{code} {words}");
    }
}

#[tokio::test]
async fn a_failed_file_has_the_exit_code_of_its_reason() {
    let world = World::new().await;
    let (code, words) = world.refused(&["bridge", "run", "nofile.toml"]).await;
    assert!(code == 3 && words.contains("nofile.toml"), "{code} {words}");
    let mut inbox = amb(world.home.path());
    let ended = soon(inbox.args(["--dir", "/dev/null", "--as", "ann", "send", "ben", "x"]).output()).await.unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = soon(world.command(&["--help"]).stdout(full).status()).await.unwrap();
    assert_eq!(ended.code(), Some(1));
}

#[tokio::test]
async fn following_a_transcript_ends_well_when_it_is_interrupted() {
    let world = World::new().await;
    let mut follow = world.command(&["transcript", "follow", "feishu:oc_1", "--root", "chats"]);
    let mut child = follow.current_dir(world.home.path()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let append = ["transcript", "append", "feishu:oc_1", "hi", "--role", "user", "--sender", "ou_1", "--root", "chats"];
    // A line that was appended before it follows is not shown.
    let shown = async {
        loop {
            let mut append = world.command(&append);
            append.current_dir(world.home.path()).status().await.unwrap();
            let wait = std::time::Duration::from_millis(500);
            if let Ok(line) = tokio::time::timeout(wait, lines.next_line()).await {
                return line.unwrap().unwrap();
            }
        }
    };
    assert!(soon(shown).await.contains("hi"));
    let id = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert!(soon(child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_transcript_has_the_limit_of_a_server_in_files_too() {
    let world = World::new().await;
    for limit in ["0", "1001"] {
        let (code, words) = world.refused(&["transcript", "recent", "feishu:oc_1", "--limit", limit]).await;
        assert!(code == 2 && words.contains("1000"), "{code} {words}");
    }
}
