//! Names and consent across a mount: nobody is taken for another, and nobody gets mail that it did not agree to.

use amb_core::{AllowFrom, Card, Draft, Mailbox as _, TaskState};
use amb_dir::Layout;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::mount_world::{Database, World, arrives, name, open, start, until};

#[tokio::test]
async fn a_name_on_both_sides_gets_nobodys_mail() {
    let mut world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let (ann, theirs) = (world.server.register("ann-mcp").await, world.server.register("coder").await);
    world.server.connect(&ann, &theirs).await;
    let (ours, zoe) = (world.resident("coder").await, world.resident("zoe").await);
    world.known(&ann, "zoe").await;
    world.shown("ann-mcp").await;
    for round in 0..2 {
        until(async || world.health().await["collisions"] == 1).await;
        // Mail to the office's agent stays in the office, and mail to the directory's in the directory.
        let sent = world.send(&ann, "coder", json!({"content": "to the office's"})).await;
        zoe.send(Draft::text(name("coder"), "Plan", "to the directory's")).await.unwrap();
        assert_eq!(arrives(&ours).await.text(), "to the directory's");
        let came = world.comes(&theirs, "ann-mcp").await;
        assert_eq!(came["id"], sent["message_id"]);
        // What the directory's one writes to the office would be taken for the other's.
        ours.send(Draft::text(name("ann-mcp"), "Plan", "guess who")).await.unwrap();
        until(async || world.files("ann-mcp/refused").len() == round + 1).await;
        let task = ours.send(Draft::task(name("ann-mcp"), "Plan", "guess who")).await.unwrap().task.unwrap();
        let told = arrives(&ours).await.task.unwrap();
        assert_eq!((told.id, told.state), (task.id, TaskState::Rejected));
        let mail = world.server.get(&ann, "/messages?from=coder").await.expect(200);
        assert_eq!(mail["messages"], json!([]));
        world = world.restart().await;
    }
}

#[tokio::test]
async fn a_mounted_agents_name_cannot_be_registered_and_an_office_agents_not_taken() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;
    let again = json!({"name": "coder"});
    let refused = world.server.call(Method::POST, "/agents/register", None, Some(&again)).await;
    assert_eq!(refused.expect(409)["code"], "conflict");
    let forged = world.directory().mailbox(name("ann-mcp"));
    assert_eq!(forged.register(Card::default()).await.unwrap_err().code(), amb_core::Code::Conflict);
    assert!(forged.send(Draft::text(name("coder"), "Plan", "it is me")).await.is_err());

    // A file that claims to be from another agent of the office, or from nobody, goes no further.
    let bob = world.server.register("bob-mcp").await;
    world.server.connect(&ann, &bob).await;
    for (n, from) in ["bob-mcp", "nobody"].into_iter().enumerate() {
        let file = json!({"from": from, "to": "ann-mcp", "type": "message", "content": "it is me"});
        let path = world.root.join("ann-mcp/inbox").join(format!("1772706600{n}00_{from}.msg.json"));
        fs_err::write(path, file.to_string()).unwrap();
    }
    until(async || world.files("ann-mcp/refused").len() == 2).await;
    coder.send(Draft::text(name("ann-mcp"), "Plan", "it is really me")).await.unwrap();
    assert_eq!(world.comes(&ann, "coder").await["parts"][0]["text"], "it is really me");
    let all = world.server.get(&ann, "/messages").await.expect(200);
    assert_eq!(all["messages"].as_array().unwrap().len(), 1, "{all}");

    // A program that registers in the directory under the name all the same has it there, and the mount lets go.
    let path = world.root.join("_registry.json");
    let mut registry: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    registry["ann-mcp"]["registered_at"] = "2099-01-01T00:00:00+00:00".into();
    fs_err::write(&path, registry.to_string()).unwrap();
    until(async || world.health().await["collisions"] == 1).await;
    world.send(&ann, "coder", json!({"content": "who am I?"})).await;
    coder.send(Draft::text(name("ann-mcp"), "Plan", "to whoever is here")).await.unwrap();
    let here = world.directory().mailbox(name("ann-mcp"));
    assert_eq!(arrives(&here).await.text(), "to whoever is here");
    assert_eq!(coder.inbox(true).await.unwrap().unread(), 0, "nothing under a name that is another's here");
}

#[tokio::test]
async fn mail_to_an_agent_of_the_office_waits_for_its_consent() {
    for flags in [&["--mount-open"][..], &["--mount-open", "--private-codes"]] {
        let mut world = World::with_flags(Database::sqlite(), Layout::Nanobot, flags).await;
        let coder = world.resident("coder").await;
        let (ann, bob) = (world.server.register("ann-mcp").await, world.server.register("bob-mcp").await);
        let friend = json!({"name": "eva-mcp", "allow_from": ["coder"]});
        let friend = world.server.call(Method::POST, "/agents/register", None, Some(&friend)).await.expect(201);
        let eva =
            crate::server_office::Agent { name: "eva-mcp".into(), key: friend["api_key"].as_str().unwrap().to_owned() };
        for guest in ["ann-mcp", "bob-mcp", "eva-mcp"] {
            world.shown(guest).await;
            for n in 1..=2 {
                coder.send(Draft::text(name(guest), "Plan", format!("mail {n}"))).await.unwrap();
            }
        }
        // Who names the sender in allow_from has agreed.
        for n in 1..=2 {
            assert_eq!(world.comes(&eva, "coder").await["parts"][0]["text"], format!("mail {n}"));
        }
        // Who does not is asked, once, and the mail waits, also while the server is away.
        for guest in [&ann, &bob] {
            until(async || world.status(guest, "coder").await == "PENDING").await;
        }
        until(async || world.health().await["waiting"] == 4).await;
        world = world.restart().await;
        let pending = world.server.get(&ann, "/connections/pending").await.expect(200);
        let pending = pending["pending_connections"].as_array().unwrap();
        assert_eq!(pending.len(), 1, "{pending:?}");
        assert_eq!(world.server.get(&ann, "/messages").await.expect(200)["messages"], json!([]));
        if let Some(code) = pending[0]["verification_code"].as_str() {
            let approve = json!({"verification_code": code});
            world.server.post(&ann, "/connections/approve", approve).await.expect(200);
        } else {
            // Its code travels by people; asking oneself is another way to agree.
            world.server.post(&ann, "/connections/request", json!({"target_agent_name": "coder"})).await.expect(201);
        }
        for n in 1..=2 {
            assert_eq!(world.comes(&ann, "coder").await["parts"][0]["text"], format!("mail {n}"), "in order");
        }
        world.server.post(&bob, "/connections/reject", json!({"agent_name": "coder"})).await.expect(200);
        until(async || world.files("bob-mcp/refused").len() == 2).await;
        assert_eq!(world.server.get(&bob, "/messages").await.expect(200)["messages"], json!([]));
        until(async || world.health().await["waiting"] == 0).await;
    }
}

#[tokio::test]
async fn a_sender_that_a_mounted_agent_does_not_allow_is_rejected_at_once() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let card = Card { allow_from: AllowFrom(vec!["bob-mcp".into()]), ..Card::default() };
    let coder = world.resident_with("coder", card).await;
    let (ann, bob) = (world.server.register("ann-mcp").await, world.server.register("bob-mcp").await);
    world.connect(&bob, "coder").await;
    let ask = json!({"target_agent_name": "coder"});
    world.server.post(&ann, "/connections/request", ask).await.expect(201);
    until(async || world.status(&ann, "coder").await == "REJECTED").await;
    // A card that changes is heeded from then on.
    coder.register(Card { allow_from: AllowFrom(vec![]), ..Card::default() }).await.unwrap();
    until(async || {
        let body = json!({"to": "coder", "subject": "Plan", "content": "still there?"});
        world.server.post(&bob, "/messages/send", body).await.body["code"] == "not_allowed"
    })
    .await;
}

#[tokio::test]
async fn agents_of_two_mounted_directories_write_to_each_other() {
    let second = TempDir::new().unwrap();
    let flags = ["--mount-open", "--mount", second.path().to_str().unwrap()];
    let world = World::with_flags(Database::sqlite(), Layout::Nanobot, &flags).await;
    let coder = world.resident("coder").await;
    let mayor = open(second.path(), Layout::Nanobot).mailbox(name("mayor"));
    mayor.register(Card::default()).await.unwrap();
    world.shown("mayor").await;
    coder.send(Draft::text(name("mayor"), "Plan", "from one directory")).await.unwrap();
    let came = arrives(&mayor).await;
    assert_eq!((came.from.as_str(), came.text()), ("coder", "from one directory".to_owned()));
    mayor.send(Draft::reply(&came, "to the other")).await.unwrap();
    let back = arrives(&coder).await;
    // A reply that somebody decided on begins afresh.
    assert_eq!((back.text(), back.ttl, back.trace), ("to the other".into(), 2, vec![name("mayor")]));
}

#[tokio::test]
async fn another_server_on_the_same_database_takes_the_directory_over() {
    let world = World::new(Database::postgres().await, Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    let second = start(&world.database.url(), &world.root, Layout::Nanobot, &["--mount-open".to_owned()]).await;
    let state = second.call(Method::GET, "/health", None, None).await.expect(200)["mounts"][0]["state"].clone();
    assert_eq!(state, "waiting", "one process at a time carries mail");
    // Mail that is accepted by the one is carried by the other.
    let body = json!({"to": "coder", "subject": "Plan", "content": "by way of the second"});
    second.post(&ann, "/messages/send", body.clone()).await.expect(201);
    assert_eq!(arrives(&coder).await.text(), "by way of the second");
    world.server.kill().await;
    second.post(&ann, "/messages/send", body).await.expect(201);
    assert_eq!(arrives(&coder).await.text(), "by way of the second");
}

#[tokio::test]
async fn a_mount_that_is_no_directory_is_refused_before_the_server_listens() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let database = Database::sqlite();
    let mut command = crate::server_office::serve_command(&database.url());
    command.arg("--mount").arg(file.path()).stderr(std::process::Stdio::piped());
    let output = command.output().await.unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("is not a directory"), "{stderr}");
}
