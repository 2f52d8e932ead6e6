//! Resident agents: one process, one session for each conversation, and how both survive failures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_bridge::acp::{Acp, AcpOptions, Permissions};
use amb_bridge::{BridgeOptions, Conversations, FailureKind, Ledger, Runtime, RuntimeState, Turn};
use amb_core::Mailbox;

use crate::world::{World, quick, until};

/// A fake agent and what it was asked.
struct Fake {
    mode: &'static str,
    place: PathBuf,
}

impl Fake {
    fn new(world: &World, mode: &'static str) -> Self {
        let place = world.state.path().join("fake");
        fs_err::create_dir_all(place.join("conversations")).unwrap();
        Self { mode, place }
    }

    fn options(&self) -> AcpOptions {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_acp.py");
        let place = self.place.display().to_string();
        AcpOptions {
            command: vec!["python3".into(), script.into(), self.mode.into(), place],
            environment: std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME").collect(),
            directory: self.place.clone(),
            memory: Some(self.place.join("conversations")),
            start_limit: Duration::from_secs(20),
            cancel_limit: Duration::from_secs(10),
            ..AcpOptions::default()
        }
    }

    fn agent(&self) -> Arc<dyn Runtime> {
        Arc::new(Acp::new(self.options()))
    }

    fn log(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.place.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn count(&self, what: &str) -> usize {
        self.log().iter().filter(|line| *line == what).count()
    }
}

/// Time enough for a Python to start on a busy machine.
fn patient() -> BridgeOptions {
    BridgeOptions {
        turn_timeout: Duration::from_secs(20),
        conversations: Conversations::Peer("peer:".into()),
        ..quick()
    }
}

#[tokio::test]
async fn one_process_and_one_session_answer_a_peer() {
    let world = World::new().await;
    let fake = Fake::new(&world, "ok");
    let bridge = world.start_with(fake.agent(), patient());
    for _ in 0..3 {
        let mail = world.mail().await;
        world.has_one_answer(&mail, "an ACP agent").await;
    }
    assert_eq!((fake.count("initialize"), fake.count("session/new")), (1, 1), "{:?}", fake.log());
    assert!(world.status().unwrap().runtime.ends_with("(fake 1)"));
    bridge.stop().await;
}

#[tokio::test]
async fn each_session_has_its_own_acp_session_where_that_is_configured() {
    let world = World::new().await;
    let fake = Fake::new(&world, "ok");
    let options = BridgeOptions { conversations: Conversations::Session, ..patient() };
    let bridge = world.start_with(fake.agent(), options);
    for _ in 0..2 {
        let mail = world.mail().await;
        world.is_answered(&mail).await;
    }
    assert_eq!((fake.count("initialize"), fake.count("session/new")), (1, 2), "{:?}", fake.log());
    bridge.stop().await;
}

#[tokio::test]
async fn turns_of_two_sessions_run_side_by_side() {
    let world = World::new().await;
    let fake = Fake::new(&world, "together");
    let options = BridgeOptions { conversations: Conversations::Session, concurrency: 4, ..patient() };
    let bridge = world.start_with(fake.agent(), options);
    // Neither is answered before both have begun.
    let (one, two) = (world.mail().await, world.mail().await);
    world.is_answered(&one).await;
    world.is_answered(&two).await;
    bridge.stop().await;
}

#[tokio::test]
async fn permission_is_refused_unless_the_rule_says_otherwise() {
    for (permissions, answer) in [(Permissions::Reject, "reject_once"), (Permissions::Allow, "allow_once")] {
        let world = World::new().await;
        let fake = Fake::new(&world, "asks");
        let agent = Acp::new(AcpOptions { permissions, ..fake.options() });
        let bridge = world.start_with(Arc::new(agent), patient());
        let mail = world.mail().await;
        world.is_answered(&mail).await;
        assert_eq!(world.replies(&mail).await, [answer]);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn an_agent_that_dies_in_a_turn_is_started_again_and_told_what_was_said() {
    let world = World::new().await;
    let fake = Fake::new(&world, "dies");
    let bridge = world.start_with(fake.agent(), patient());
    let first = world.mail().await;
    world.is_answered(&first).await;
    let second = world.mail().await;
    world.has_one_answer(&second, "after a crash").await;
    assert_eq!((fake.count("initialize"), fake.count("session/new")), (2, 2), "{:?}", fake.log());
    assert_eq!(fake.count("handed over: question 0 question 1"), 1, "{:?}", fake.log());
    bridge.stop().await;
}

#[tokio::test]
async fn a_mail_on_which_the_agent_always_dies_is_given_up_and_others_go_on() {
    let world = World::new().await;
    let fake = Fake::new(&world, "always-dies");
    let bridge = world.start_with(fake.agent(), BridgeOptions { max_failures: 2, ..patient() });
    world.mail().await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    let dead = Ledger::open_read_only(&world.ledger()).dead_letters().unwrap();
    assert_eq!(dead[0].trouble, FailureKind::Lost);
    assert!(dead[0].reason.contains("exit status: 9") && dead[0].reason.contains("out of memory"), "{dead:?}");
    let next = world.mail().await;
    world.is_answered(&next).await;
    bridge.stop().await;
}

#[tokio::test]
async fn an_idle_session_is_loaded_again_and_its_replayed_text_is_no_answer() {
    for (mode, new, handed_over) in [("loads", 1, 0), ("load-fails", 2, 1), ("ok", 2, 1)] {
        let world = World::new().await;
        let fake = Fake::new(&world, mode);
        for _ in 0..2 {
            let bridge = world.start_with(fake.agent(), patient());
            let mail = world.mail().await;
            world.is_answered(&mail).await;
            assert_eq!(world.replies(&mail).await, [format!("answer to {}", mail.id)], "{mode}");
            world.status_says("end of the mail", |status| status.replied == 1).await;
            bridge.stop().await;
        }
        assert_eq!(fake.count("session/new"), new, "{mode}: {:?}", fake.log());
        assert_eq!(fake.count("handed over: question 0 question 1"), handed_over, "{mode}: {:?}", fake.log());
    }
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_cancelled_and_the_session_stays() {
    let world = World::new().await;
    let fake = Fake::new(&world, "slow");
    let options = BridgeOptions { turn_timeout: Duration::from_millis(300), max_failures: 2, ..patient() };
    let bridge = world.start_with(fake.agent(), options);
    world.mail().await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    assert_eq!(Ledger::open_read_only(&world.ledger()).dead_letters().unwrap()[0].trouble, FailureKind::Timeout);
    assert_eq!((fake.count("cancelled"), fake.count("session/new")), (2, 1), "{:?}", fake.log());
    bridge.stop().await;
}

#[tokio::test]
async fn an_agent_that_ignores_a_cancel_is_killed_with_all_that_it_started() {
    let world = World::new().await;
    let fake = Fake::new(&world, "deaf");
    let agent = Acp::new(AcpOptions { cancel_limit: Duration::from_millis(50), ..fake.options() });
    let options = BridgeOptions { turn_timeout: Duration::from_millis(300), max_failures: 1, ..patient() };
    let bridge = world.start_with(Arc::new(agent), options);
    world.mail().await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    let place = fake.place.display().to_string();
    until("end of its processes", async || !is_running(&place)).await;
    bridge.stop().await;
}

/// Whether a process works in this directory, not counting zombies.
fn is_running(place: &str) -> bool {
    let processes = fs_err::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| fs_err::read_link(entry.path().join("cwd")).ok())
        .any(|cwd| cwd == std::path::Path::new(place))
}

#[tokio::test]
async fn a_stopped_bridge_leaves_no_agent_running() {
    let world = World::new().await;
    let fake = Fake::new(&world, "slow");
    let bridge = world.start_with(fake.agent(), patient());
    world.mail().await;
    until("turn", async || fake.count("session/prompt") == 1).await;
    bridge.stop().await;
    let place = fake.place.display().to_string();
    until("end of its processes", async || !is_running(&place)).await;
}

#[tokio::test]
async fn an_endless_answer_is_cut_and_endless_lines_are_skipped() {
    let world = World::new().await;
    let fake = Fake::new(&world, "huge");
    let bridge = world.start_with(fake.agent(), patient());
    let mail = world.mail().await;
    world.status_says("answer", |status| status.replied == 1).await;
    let parts = world.replies(&mail).await;
    assert_eq!(parts.len(), 20);
    assert!(parts[0].contains("yyy") && !parts[0].contains('x'), "the line of 9 MiB is passed over");
    assert!(parts[19].contains("[cut: "), "{}", parts[19]);
    bridge.stop().await;
}

#[tokio::test]
async fn lines_that_are_not_messages_are_skipped() {
    let world = World::new().await;
    let fake = Fake::new(&world, "garbage");
    let bridge = world.start_with(fake.agent(), patient());
    let mail = world.mail().await;
    world.has_one_answer(&mail, "among garbage").await;
    bridge.stop().await;
}

#[tokio::test]
async fn an_agent_that_takes_no_turns_makes_mail_wait_and_says_why() {
    let cases = [
        ("babble", FailureKind::Unreachable, "no messages of the protocol"),
        ("locked", FailureKind::Unauthorized, "--auth"),
        ("future", FailureKind::NotOffered, "version 7"),
    ];
    for (mode, wanted, words) in cases {
        let world = World::new().await;
        let fake = Fake::new(&world, mode);
        let bridge = world.start_with(fake.agent(), patient());
        let mail = world.mail().await;
        let status =
            world.status_says("trouble", |status| matches!(status.connection, RuntimeState::Down { .. })).await;
        let RuntimeState::Down { trouble, detail, .. } = status.connection else { panic!("{mode}: up") };
        assert_eq!(trouble, wanted, "{mode}: {detail}");
        assert!(detail.contains(words), "{mode}: {detail}");
        bridge.stop().await;
        let bridge = world.start_with(Fake::new(&world, "ok").agent(), patient());
        world.is_answered(&mail).await;
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_refusal_is_final_and_an_error_is_tried_again() {
    let world = World::new().await;
    let bridge = world.start_with(Fake::new(&world, "refuses").agent(), patient());
    world.mail().await;
    world.status_says("mail given up", |status| status.given_up == 1).await;
    let dead = Ledger::open_read_only(&world.ledger()).dead_letters().unwrap().remove(0);
    assert_eq!((dead.trouble, dead.failures), (FailureKind::Refused, 1));
    bridge.stop().await;

    let world = World::new().await;
    let fake = Fake::new(&world, "error");
    let bridge = world.start_with(fake.agent(), patient());
    let mail = world.mail().await;
    world.has_one_answer(&mail, "after an error").await;
    assert!(world.status().unwrap().last_error.unwrap().contains("quota"));
    bridge.stop().await;
}

/// One message for one turn, as a bridge gives it.
async fn turn(timeout: Duration, world: &World) -> Turn {
    let sent = world.mail().await;
    let mail = world.bob.message(&sent.id).await.unwrap().message;
    let prompt = format!("<mail id=\"{}\">question 0</mail>", mail.id);
    Turn { mail, session_key: "peer:ann".into(), prompt, key: "k".into(), repeat: false, tried: false, timeout }
}

#[tokio::test]
async fn an_abandoned_prompt_leaves_no_second_one_in_its_session() {
    let world = World::new().await;
    let fake = Fake::new(&world, "slow");
    let agent = fake.agent();
    let long = turn(Duration::from_secs(600), &world).await;
    let dropped = tokio::select! {
        ended = agent.turn(&long) => panic!("{ended:?}"),
        () = until("prompt", async || fake.count("session/prompt") == 1) => true,
    };
    assert!(dropped);
    until("cancel", async || fake.count("cancelled") == 1).await;
    // The agent fails where a session has two prompts.
    let ended = agent.turn(&turn(Duration::from_millis(500), &world).await).await.unwrap_err();
    assert_eq!(ended.kind, FailureKind::Timeout, "{ended}");
    assert_eq!((fake.count("session/new"), fake.count("initialize")), (2, 1), "{:?}", fake.log());
}

#[tokio::test]
async fn the_start_of_a_session_is_part_of_a_turns_time() {
    let world = World::new().await;
    let fake = Fake::new(&world, "slow-start");
    let agent = fake.agent();
    agent.check().await.unwrap();
    let began = Instant::now();
    let ended = agent.turn(&turn(Duration::from_secs(3), &world).await).await.unwrap_err();
    assert_eq!((ended.kind, fake.count("cancelled")), (FailureKind::Timeout, 1), "{ended}: {:?}", fake.log());
    assert!(
        began.elapsed() < Duration::from_millis(4_500),
        "two seconds of the three were over: {:?}",
        began.elapsed()
    );
    // A turn without the time to begin a session does not end the agent, which others may use.
    agent.turn(&turn(Duration::from_millis(1), &world).await).await.unwrap_err();
    assert_eq!(fake.count("initialize"), 1, "{:?}", fake.log());
}

#[tokio::test]
async fn an_agent_that_sends_many_requests_before_it_reads_gets_all_answers() {
    let world = World::new().await;
    let fake = Fake::new(&world, "asks-before-it-reads");
    let bridge = world.start_with(fake.agent(), patient());
    let mail = world.mail().await;
    world.has_one_answer(&mail, "an agent that asks much").await;
    assert_eq!((fake.count("answered: 800"), fake.count("initialize")), (2, 1), "{:?}", fake.log());
    bridge.stop().await;
}
