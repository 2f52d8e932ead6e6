//! A server's beginning and end: one on a file, and a goodbye to everybody.

use std::process::Stdio;

use amb_testing::SqliteFile;
use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio_tungstenite::tungstenite::Message;

use crate::server_load::Load;
use crate::server_office::{Office, greeted, serve_command, serve_command_at, soon};

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused_with_a_clear_message() {
    let file = SqliteFile::fresh();
    let first = Office::start(&file.url()).await;
    let output = serve_command(&file.url()).stderr(std::process::Stdio::piped()).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(stderr.contains("another server") && stderr.contains("mail.db"), "{stderr}");
    assert!(output.stdout.is_empty(), "a refused server must not say that it listens");
    // The first server is not affected.
    assert!(first.is_ready().await);
    first.kill().await;
    // A killed process holds no lock.
    let next = Office::start(&file.url()).await;
    assert!(next.is_ready().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polite_end_finishes_what_was_accepted_and_says_goodbye_to_sockets() {
    let file = SqliteFile::fresh();
    let mut office = Office::start(&file.url()).await;
    let (_, bob) = office.pair(100).await;
    let load = Load::begin(&[&office]).await;
    for _ in 0..3 {
        let mut socket = office.socket(&bob, 0).await;
        greeted(&mut socket).await;
        load.advance(30).await;
        office.terminate();
        let goodbye = loop {
            match soon(socket.next()).await.expect("a close, not a broken connection").unwrap() {
                Message::Close(frame) => break frame.expect("a close with a reason"),
                _ => continue,
            }
        };
        assert_eq!(u16::from(goodbye.code), 1001);
        assert!(goodbye.reason.contains("closing"), "{}", goodbye.reason);
        // Lets the library answer the close.
        let _ = soon(socket.next()).await;
        assert!(office.ended().await.success());
        let left: Vec<_> = fs_err::read_dir(file.path().parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with("-wal"))
            .collect();
        assert!(left.is_empty(), "the write-ahead log is folded in at the end: {left:?}");
        office = Office::start(&file.url()).await;
        load.moved_to(0, &office);
    }
    load.advance(10).await;
    load.check(&office).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_after_an_outage_where_it_was() {
    let file = SqliteFile::fresh();
    let office = Office::start(&file.url()).await;
    let address = office.address.to_string();
    let (alice, bob) = office.pair(0).await;
    let cursor = office.get(&bob, "/events").await.expect(200)["cursor"].to_string();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_amb"));
    watch.args(["watch", "--json", "--count", "2", "--since", &cursor, "--server", &office.url("")]);
    watch.env("MAILBOX_API_KEY", &bob.key).env("HOME", file.path().parent().unwrap());
    watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut watch = watch.spawn().unwrap();
    let mut printed = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines();
    office.send(&alice, &bob, "before").await.expect(201);
    let heard = soon(printed.next_line()).await.unwrap().expect("a line");
    assert!(heard.contains("before"), "{heard}");
    office.kill().await;
    soon(async {
        // A failed heartbeat may be reported first.
        while !said.next_line().await.unwrap().expect("a word about the outage").contains("watching on") {}
    })
    .await;
    let office = Office::start_with(serve_command_at(&address, &file.url())).await;
    office.send(&alice, &bob, "after").await.expect(201);
    let next = soon(printed.next_line()).await.unwrap().expect("a line");
    assert!(next.contains("after"), "{next}");
    assert!(soon(watch.wait()).await.unwrap().success());
}

#[tokio::test]
async fn an_office_on_every_address_names_one_that_clients_can_use() {
    let file = SqliteFile::fresh();
    let mut command = serve_command_at("0.0.0.0:0", &file.url());
    command.args(["--metrics-listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut office = command.spawn().unwrap();
    let mut notes = BufReader::new(office.stderr.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("metrics at http://127.0.0.1:") {
        said += &soon(notes.next_line()).await.unwrap().expect("the office ended");
    }
    assert!(said.contains("amb register NAME --server http://127.0.0.1:"), "{said}");
    assert!(!said.contains("metrics at http://127.0.0.1:0/"), "{said}");
    office.kill().await.unwrap();
}

#[tokio::test]
async fn settings_come_from_a_file_of_variables_unless_the_environment_has_them() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("office.env");
    let database = home.path().join("mail.db");
    let text = format!(
        "# an office\nAMB_LISTEN=127.0.0.1:0\nexport DATABASE_URL='sqlite:{}'\nAMB_RATE_LIMITS=nonsense\n",
        database.display()
    );
    fs_err::write(&file, text).unwrap();
    let serve = |file: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
        command.env_clear().env("HOME", home.path()).arg("serve").arg("--env-file").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    };
    // The file's value is used: here an invalid one.
    let refused = soon(serve(&file).output()).await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    // The environment takes precedence over it.
    let mut command = serve(&file);
    command.env("AMB_RATE_LIMITS", "off");
    let office = Office::start_with(command).await;
    assert!(office.is_ready().await && database.exists());

    let missing = soon(serve(&home.path().join("none.env")).output()).await.unwrap();
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(!missing.status.success() && said.contains("none.env"), "{said}");
}
