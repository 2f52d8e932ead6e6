//! Commands as runtimes.

use std::sync::Arc;
use std::time::Duration;

use amb_bridge::exec::{Exec, Input};
use amb_bridge::{BridgeOptions, FailureKind, Ledger};
use amb_core::mailbox::Mailbox;

use crate::world::{Mail, Running, World, quick, until};

fn shell(script: &str, input: Input) -> Arc<Exec> {
    Arc::new(Exec {
        command: ["sh", "-c", script].map(String::from).to_vec(),
        input,
        environment: vec![("AMB_AS".into(), "bob".into())],
        records: None,
    })
}

async fn run(world: &World, script: &str, input: Input) -> (Running, Mail) {
    let options = BridgeOptions { turn_timeout: Duration::from_secs(10), max_failures: 1, ..quick() };
    let bridge = world.start_with(shell(script, input), options);
    (bridge, world.mail().await)
}

async fn answer(script: &str, input: Input) -> String {
    let world = World::new().await;
    let (bridge, mail) = run(&world, script, input).await;
    world.is_answered(&mail).await;
    bridge.stop().await;
    world.replies(&mail).await.remove(0)
}

#[tokio::test]
async fn a_command_gets_the_text_and_what_it_prints_is_the_answer() {
    assert_eq!(answer("tr a-z A-Z", Input::Text).await, "QUESTION 0");
    assert_eq!(
        answer("echo; echo '  two lines  '; echo", Input::Text).await,
        "\n  two lines  \n",
        "only the last newline goes"
    );
}

#[tokio::test]
async fn a_command_gets_the_prompt_or_the_message_where_it_wants_that() {
    let prompt = answer("cat", Input::Prompt).await;
    assert!(prompt.starts_with("[Mailbox] New message from alice") && prompt.contains("question 0"), "{prompt}");
    let message: amb_core::Message = serde_json::from_str(&answer("cat", Input::Json).await).unwrap();
    assert_eq!((message.from.as_str(), message.text().as_str()), ("alice", "question 0"));
}

#[tokio::test]
async fn a_command_knows_the_mail_from_its_environment() {
    let script = r#"echo "$AMB_FROM $AMB_TO $AMB_KIND $AMB_PRIORITY $AMB_SUBJECT $AMB_AS ${#AMB_MESSAGE_ID} ${AMB_SESSION_ID:+s}""#;
    assert_eq!(answer(script, Input::Text).await, "alice bob message normal subject 0 bob 36 s");
}

#[tokio::test]
async fn a_command_that_prints_nothing_answers_nothing() {
    for (script, input) in
        [("cat >/dev/null", Input::Text), ("true", Input::Text), ("echo '[mailbox: no answer]'", Input::Prompt)]
    {
        let world = World::new().await;
        let (bridge, mail) = run(&world, script, input).await;
        world.status_says("mail without an answer", |status| status.unanswered == 1).await;
        assert!(world.replies(&mail).await.is_empty());
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_command_that_fails_is_given_up_with_what_it_said() {
    let world = World::new().await;
    let (bridge, mail) = run(&world, "echo half; echo broken >&2; exit 3", Input::Text).await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    let dead = Ledger::open_read_only(&world.ledger()).dead_letters().unwrap();
    assert!(dead[0].reason.contains("exit status: 3") && dead[0].reason.contains("broken"), "{}", dead[0].reason);
    let told = world.replies(&mail).await;
    assert_eq!(told.len(), 1, "its sender is told, once");
    assert!(told[0].contains("could not work on this") && !told[0].contains("broken"), "{told:?}");
    bridge.stop().await;
}

#[tokio::test]
async fn the_stderr_of_a_command_is_not_sent_to_the_owner_of_the_task() {
    let world = World::new().await;
    let script = "echo 'postgres://admin:hunter2@db/mail refused' >&2; exit 1";
    let options = BridgeOptions { turn_timeout: Duration::from_secs(10), max_failures: 1, ..quick() };
    let bridge = world.start_with(shell(script, Input::Text), options);
    world.alice.send(amb_core::Draft::task("bob".parse().unwrap(), "work", "do it")).await.unwrap();
    world.status_says("task given up", |status| status.given_up == 1).await;
    let task = world.alice.tasks(Default::default()).await.unwrap().remove(0);
    assert_eq!(task.state, amb_core::TaskState::Failed);
    let note = task.note.unwrap();
    assert!(note.contains("could not work on this") && !note.contains("hunter2"), "{note}");
    assert!(
        Ledger::open_read_only(&world.ledger()).dead_letters().unwrap()[0].reason.contains("hunter2"),
        "its owner finds the reason"
    );
    bridge.stop().await;
}

#[tokio::test]
async fn output_that_is_not_text_is_an_answer_and_the_command_runs_once() {
    let world = World::new().await;
    let runs = world.state.path().join("runs");
    let script = format!("echo run >> {}; printf 'a\\377b\\000c\\n'", runs.display());
    let (bridge, mail) = run(&world, &script, Input::Text).await;
    world.is_answered(&mail).await;
    assert_eq!(world.replies(&mail).await, ["a\u{fffd}b\u{fffd}c"]);
    assert_eq!(fs_err::read_to_string(&runs).unwrap(), "run\n");
    bridge.stop().await;
}

#[tokio::test]
async fn a_command_gets_the_environment_it_was_given_and_no_other() {
    // Variables that cargo sets for this test are not inherited.
    let names = answer("env | sed 's/=.*//' | sort | tr '\\n' ' '", Input::Text).await;
    let foreign: Vec<&str> = names
        .split_whitespace()
        .filter(|name| !name.starts_with("AMB_") && !["PWD", "SHLVL", "_"].contains(name))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
    let world = World::new().await;
    let pids = world.state.path().join("pids");
    let script = format!("sleep 600 & echo $$ $! > {}; wait", pids.display());
    let options = BridgeOptions { turn_timeout: Duration::from_millis(500), max_failures: 1, ..quick() };
    let bridge = world.start_with(shell(&script, Input::Text), options);
    world.mail().await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    assert_eq!(Ledger::open_read_only(&world.ledger()).dead_letters().unwrap()[0].trouble, FailureKind::Timeout);
    all_gone(&pids).await;
    bridge.stop().await;
}

#[tokio::test]
async fn an_ended_bridge_leaves_no_command_running() {
    let world = World::new().await;
    let pids = world.state.path().join("pids");
    let script = format!("sleep 600 & echo $$ $! > {0}.tmp; mv {0}.tmp {0}; wait", pids.display());
    let (bridge, mail) = run(&world, &script, Input::Text).await;
    until("command", async || pids.exists()).await;
    bridge.stop().await;
    all_gone(&pids).await;
    let free = world.bob.claim(amb_core::mailbox::ClaimRequest::default()).await.unwrap();
    assert_eq!(free[0].id, mail.id);
}

#[tokio::test]
async fn a_background_process_does_not_delay_the_answer() {
    assert_eq!(answer("sleep 600 & echo done", Input::Text).await, "done");
}

#[tokio::test]
async fn a_command_that_cannot_be_found_makes_mail_wait() {
    let world = World::new().await;
    let missing = Arc::new(Exec { command: vec!["/no/such/command".into()], ..Exec::default() });
    let bridge = world.start_with(missing, quick());
    let mail = world.mail().await;
    let status = world.status_says("trouble", |status| status.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("/no/such/command"));
    bridge.stop().await;
    let bridge = world.start_with(shell("echo back", Input::Text), quick());
    world.is_answered(&mail).await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_long_output_is_split_into_messages_and_a_cut_is_marked() {
    let world = World::new().await;
    let (bridge, mail) = run(&world, "head -c 25000 /dev/zero | tr '\\0' 'x'", Input::Text).await;
    until("three parts", async || world.replies(&mail).await.len() == 3).await;
    let parts = world.replies(&mail).await;
    let whole: String = parts.iter().map(|part| part.split_once("]\n").unwrap().1).collect();
    assert_eq!(whole, "x".repeat(25_000));
    assert!(parts[2].starts_with("[part 3 of 3]\n"), "{}", parts[2]);
    bridge.stop().await;

    let world = World::new().await;
    let (bridge, mail) = run(&world, "head -c 3000000 /dev/zero | tr '\\0' 'x'", Input::Text).await;
    world.status_says("answer", |status| status.replied == 1).await;
    let parts = world.replies(&mail).await;
    assert!(parts.last().unwrap().contains("[cut: the answer has"), "{:?}", parts.last());
    bridge.stop().await;
}

/// Waits until none of the processes in the file lives, not counting zombies.
async fn all_gone(pids: &std::path::Path) {
    let pids = fs_err::read_to_string(pids).unwrap();
    until("end of the processes", async || {
        pids.split_whitespace().all(|pid| match fs_err::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')),
            Err(_) => true,
        })
    })
    .await;
}
