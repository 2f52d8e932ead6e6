//! `mailbox_wait` keeps its own time whatever becomes of the server.

use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::tempdir;

use crate::mcp_client::{Model, amb};
use crate::server_office::{Office, serve_command_at};

/// Far less than the client's own request timeout, and more than the delays of a busy machine.
const SLACK: Duration = Duration::from_secs(12);

#[tokio::test]
async fn a_wait_ends_in_time_though_the_server_hangs_and_goes_on_when_it_does_not() {
    let home = tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (ann, ben) = office.pair(0).await;
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", office.url("")).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    let mut model = Model::start(&mut command).await;
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 0);

    office.freeze();
    for seconds in [0, 5] {
        let began = Instant::now();
        let told = model.fails("mailbox_wait", json!({"timeout_seconds": seconds})).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(seconds.max(5)) + SLACK, "a wait of {seconds} s took {took:?}");
        assert!(told.starts_with("unavailable: ") && !told.contains("accepted"), "{told}");
    }
    office.thaw();
    office.send(&ann, &ben, "after the pause").await.expect(201);
    let told = model.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
    assert_eq!(told["messages"][0]["content"], "after the pause", "{told}");
    assert!(model.close().await.success());
}

#[tokio::test]
async fn a_client_that_comes_while_the_server_hangs_is_answered_in_time() {
    let home = tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let ben = office.register("ben").await;
    office.freeze();
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", office.url("")).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    let mut model = Model::start(&mut command).await;
    let began = Instant::now();
    let told = model.fails("mailbox_wait", json!({"timeout_seconds": 2})).await;
    assert!(began.elapsed() < Duration::from_secs(5) + SLACK, "{:?}: {told}", began.elapsed());
    office.thaw();
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 0);
    assert!(model.close().await.success());
}

#[tokio::test]
async fn a_wait_that_a_kill_cuts_goes_on_with_the_server_that_comes_after_it() {
    let home = tempdir().unwrap();
    let database = format!("sqlite:{}", home.path().join("mail.db").display());
    let mut office = Office::start(&database).await;
    let (ann, ben) = office.pair(0).await;
    let address = office.address.to_string();
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", office.url("")).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    let mut model = Model::start(&mut command).await;
    for round in 0..3 {
        let text = format!("after kill {round}");
        let restart = async {
            office.kill().await;
            let back = Office::start_with(serve_command_at(&address, &database)).await;
            back.send(&ann, &ben, &text).await.expect(201);
            back
        };
        let (told, back) = tokio::join!(model.call("mailbox_wait", json!({"timeout_seconds": 55})), restart);
        assert_eq!(told["messages"][0]["content"], text, "{told}");
        office = back;
    }
    assert!(model.close().await.success());
}
