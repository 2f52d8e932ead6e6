//! Looking after the office's database from the command line: copies, taking mail along, moving, removing old mail.

use std::path::Path;
use std::process::Stdio;

use amb_core::Draft;
use amb_store::{PostgresStore, SqliteStore};
use amb_testing::store::{TestStore, at};
use amb_testing::{PostgresDatabase, SqliteFile};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::server_load::Load;
use crate::server_office::{Agent, Office, serve_command, soon};

fn amb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for variable in ["DATABASE_URL", "AMB_CONFIG", "AMB_MOVE_TO", "MAILBOX_SERVER_URL", "MAILBOX_API_KEY", "AMB_DIR"] {
        command.env_remove(variable);
    }
    command
}

/// The stdout of a verb that must succeed.
async fn run(mut command: Command) -> String {
    let output = soon(command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&run(amb(&[arguments, &["--json"]].concat())).await).unwrap()
}

/// The exit code and stderr of a verb that must fail.
async fn refused(arguments: &[&str]) -> (i32, String) {
    let output = soon(amb(arguments).output()).await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_office_is_restored_completely() {
    let file = SqliteFile::fresh();
    let url = file.url();
    let office = Office::start(&url).await;
    let (alice, bob) = office.pair(100).await;
    let session = office.send(&alice, &bob, "before").await.expect(201)["session_id"].as_str().unwrap().to_owned();
    let load = Load::begin(&[&office]).await;
    load.advance(20).await;
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    let report = json(&["backup", text(&copy), "--database-url", &url]).await;
    assert!(report["messages"].as_u64().unwrap() > 20, "{report}");
    office.send(&alice, &bob, "after").await.expect(201);
    let (code, said) = refused(&["backup", text(&copy), "--database-url", &url]).await;
    assert!(code == 5 && said.contains("is there already"), "{code} {said}");
    let again = json(&["backup", text(&copy), "--database-url", &url, "--force"]).await;
    assert!(again["messages"].as_u64() > report["messages"].as_u64(), "{again}");
    let first = copies.path().join("first.db");
    load.advance(10).await;
    let (code, said) = refused(&["restore", text(&copy), "--database-url", &url]).await;
    assert!(code == 5 && said.contains("another server"), "{code} {said}");
    load.check(&office).await;
    office.terminate();
    assert!(office.ended().await.success());

    // A settings file of the server can name the database, too.
    let settings = copies.path().join("amb.toml");
    fs_err::write(&settings, format!("listen = \"127.0.0.1:0\"\ndatabase_url = {url:?}\n")).unwrap();
    fs_err::rename(&copy, &first).unwrap();
    let restored = json(&["restore", text(&first), "--config", text(&settings)]).await;
    assert_eq!(restored["messages"], again["messages"]);
    let kept = restored["kept"].as_str().unwrap();
    assert!(fs_err::metadata(kept).unwrap().len() > 0);
    let office = Office::start(&url).await;
    let history = office.history(&alice, &session).await;
    assert_eq!(history.iter().map(|(_, content)| content.as_str()).collect::<Vec<_>>(), ["before", "after"]);
    office.send(&alice, &bob, "on we go").await.expect(201);
}

#[tokio::test]
async fn the_error_for_postgres_names_its_own_backup_tools() {
    for (verb, tool) in [("backup", "pg_dump"), ("restore", "pg_restore")] {
        let (code, said) = refused(&[verb, "x.db", "--database-url", "postgres://u:secret@127.0.0.1:1/d"]).await;
        assert!(code == 7 && said.contains(tool) && !said.contains("secret"), "{code} {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_all_of_ones_own_mail_as_json_lines() {
    let file = SqliteFile::fresh();
    let office = Office::start(&file.url()).await;
    let (alice, bob) = office.pair(0).await;
    for n in 0..450 {
        office.send(&alice, &bob, &format!("line {n}\nof two")).await.expect(201);
    }
    let export = |more: &[&str]| {
        let mut command = amb(&[&["export", "--server", &office.url("")], more].concat());
        command.env("MAILBOX_API_KEY", &bob.key);
        command
    };
    let lines = run(export(&[])).await;
    let mail: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<_> = mail.iter().map(|mail| mail["parts"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, (0..450).map(|n| format!("line {n}\nof two")).collect::<Vec<_>>());
    assert!(mail.iter().all(|mail| mail["receipts"].as_array().unwrap().len() == 1));

    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("mail.jsonl");
    run(export(&["-o", text(&target)])).await;
    assert_eq!(fs_err::read_to_string(&target).unwrap(), lines);
    let output = soon(export(&["-o", text(&target)]).output()).await.unwrap();
    assert_eq!(output.status.code(), Some(5), "never over another file");
    let since = mail[448]["sent_at"].as_str().unwrap();
    run(export(&["-o", text(&target), "--force", "--since", since])).await;
    assert_eq!(fs_err::read_to_string(&target).unwrap().lines().count(), 2);

    // `amb export | head -1`
    let mut child = export(&[]).spawn().unwrap();
    drop(child.stdout.take());
    assert!(soon(child.wait()).await.unwrap().success());
    let (code, said) = refused(&["--dir", text(place.path()), "--as", "ann", "export"]).await;
    assert!(code == 7 && said.contains("files already"), "{code} {said}");
}

/// Runs a move until it waits for the lock that the test holds, and kills it there.
async fn kill_when_it_waits(mut moving: Child, database: &PostgresDatabase) {
    soon(async {
        while !database.is_somebody_waiting().await {
            assert!(moving.try_wait().unwrap().is_none(), "the move ended before it was killed");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    moving.start_kill().unwrap();
    assert!(!soon(moving.wait()).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_killed_twice_resumes_and_completes() {
    let file = SqliteFile::fresh();
    let server = TestStore(std::sync::Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    let (alice, bob) = server.pair().await;
    let mut session = None;
    for n in 0..5_000 {
        let draft = Draft::text(bob.name.clone(), "Plan", format!("text {n}"));
        session = Some(server.send(&alice, draft, at(1)).await.unwrap().answer.session_id);
    }
    server.close().await;
    drop(server);
    let database = PostgresDatabase::fresh().await;
    let (from, to) = (file.url(), database.url());
    let arguments = ["move", "--database-url", &from, "--to", &to];
    let office = Office::start(&from).await;
    let (code, said) = refused(&arguments).await;
    assert!(code == 5 && said.contains("another server"), "{code} {said}");
    office.terminate();
    let ended = office.ended().await;
    assert!(ended.success(), "{ended}");

    // In the middle of a page each time: a row blocks on a lock that the test holds.
    for (table, column) in [("messages", "id"), ("deliveries", "number")] {
        let held = database.wait_at(table, &format!("NEW.{column} = 3000")).await;
        kill_when_it_waits(amb(&arguments).spawn().unwrap(), &database).await;
        drop(held);
        database.run(&format!("DROP TRIGGER wait ON {table}")).await;
    }
    let report = json(&arguments).await;
    assert_eq!((&report["rows"]["messages"], &report["rows"]["agents"]), (&5_000.into(), &2.into()), "{report}");
    assert_eq!(report["checksum"].as_str().unwrap().len(), 64);
    assert_eq!(json(&arguments).await["checksum"], report["checksum"], "once more is no harm");

    let server = TestStore(std::sync::Arc::new(PostgresStore::open(&to).await.unwrap()));
    let texts = server.texts(&bob, &session.unwrap(), 10_000).await;
    assert_eq!(texts, (0..5_000).rev().map(|n| format!("text {n}")).collect::<Vec<_>>());
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_mail_is_deleted_after_its_retention_and_unread_mail_never() {
    let file = SqliteFile::fresh();
    let office = Office::start(&file.url()).await;
    let (alice, bob) = office.pair(0).await;
    let mut sent = Vec::new();
    for n in 0..6 {
        sent.push(office.send(&alice, &bob, &n.to_string()).await.expect(201));
    }
    let ids: Vec<_> = sent[..4].iter().map(|sent| sent["message_id"].clone()).collect();
    office.post(&bob, "/messages/ack", serde_json::json!({ "message_ids": ids })).await.expect(200);
    office.terminate();
    assert!(office.ended().await.success());
    let left = async |days: &str| {
        let mut command = serve_command(&file.url());
        command.args(["--keep-read-mail", days]);
        let office = Office::start_with(command).await;
        // The first run of the job is at the server's start.
        let left = soon(async {
            loop {
                let page = office.get(&bob, "/messages?limit=50").await.expect(200);
                let count = page["messages"].as_array().unwrap().len();
                if days != "0" || count < 6 {
                    return count;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        // The next server cannot open the file until this one has released it.
        office.kill().await;
        left
    };
    assert_eq!(left("7").await, 6);
    assert_eq!(left("0").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_gives_an_agent_a_new_key_in_the_database() {
    let file = SqliteFile::fresh();
    let url = file.url();
    let office = Office::start(&url).await;
    let (alice, _) = office.pair(100).await;
    let (code, said) = refused(&["admin", "key", &alice.name, "--database-url", &url]).await;
    assert!(code == 5 && said.contains("stop it"), "{code} {said}");
    office.kill().await;
    let issued = json(&["admin", "key", &alice.name, "--database-url", &url]).await;
    assert_eq!(issued["name"], alice.name);
    let office = Office::start(&url).await;
    office.inbox_with(issued["api_key"].as_str().unwrap()).await.expect(200);
    office.inbox_with(&alice.key).await.expect(401);
    office.kill().await;
    let (code, said) = refused(&["admin", "key", "nobody-here", "--database-url", &url]).await;
    assert!(code == 3 && said.contains("nobody-here"), "{code} {said}");
    let missing = format!("{url}-missing");
    let (code, _) = refused(&["admin", "key", &alice.name, "--database-url", &missing]).await;
    assert_eq!(code, 3, "no empty office is made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_issued_on_postgresql_ends_the_old_one_while_the_server_runs() {
    let database = PostgresDatabase::fresh().await;
    let office = Office::start(&database.url()).await;
    let (alice, _) = office.pair(100).await;
    office.inbox_with(&alice.key).await.expect(200);
    let issued = json(&["admin", "key", &alice.name, "--database-url", &database.url()]).await;
    let new = issued["api_key"].as_str().unwrap();
    office.inbox_with(new).await.expect(200);
    // The server is notified by the database.
    soon(async { while office.inbox_with(&alice.key).await.status != 401 {} }).await;
}

/// The new cursor of a client that resumes from `cursor`, and how many entries it gets.
async fn told_after(office: &Office, agent: &Agent, cursor: &Value) -> (Value, usize) {
    let since = cursor.as_str().map_or_else(|| cursor.to_string(), str::to_owned);
    let page = office.get(agent, &format!("/events?since={since}&wait=0")).await.expect(200);
    (page["cursor"].clone(), page["events"].as_array().unwrap().len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_cursors_were_advanced_an_older_client_misses_nothing() {
    let database = PostgresDatabase::fresh().await;
    let office = Office::start(&database.url()).await;
    let (alice, bob) = office.pair(100).await;
    for n in 0..3 {
        office.send(&alice, &bob, &n.to_string()).await.expect(201);
    }
    let (remembered, _) = told_after(&office, &bob, &Value::from(0)).await;
    // The database was restored to a state before the entries that the client has seen.
    database
        .run("DELETE FROM deliveries WHERE number > 1; DELETE FROM events WHERE number > 1; UPDATE mailboxes SET head = 1")
        .await;
    let forward = json(&["admin", "advance-cursors", "--database-url", &database.url()]).await;
    assert_eq!(forward["logs"], 2);
    for n in 0..3 {
        office.send(&alice, &bob, &n.to_string()).await.expect(201);
    }
    assert_eq!(told_after(&office, &bob, &remembered).await.1, 3);

    let file = SqliteFile::fresh();
    let office = Office::start(&file.url()).await;
    office.pair(100).await;
    let (code, said) = refused(&["admin", "advance-cursors", "--database-url", &file.url()]).await;
    assert!(code == 5 && said.contains("server"), "{code} {said}");
    office.kill().await;
    assert_eq!(json(&["admin", "advance-cursors", "--database-url", &file.url()]).await["logs"], 2);
}

#[tokio::test]
async fn no_secret_of_the_environment_is_in_the_help() {
    let secrets = [
        "DATABASE_URL",
        "AMB_MOVE_TO",
        "NATS_URL",
        "NATS_TOKEN",
        "NATS_PASSWORD",
        "MAILBOX_API_KEY",
        "OPENCLAW_GATEWAY_TOKEN",
        "AMB_REGISTRATION_TOKEN",
    ];
    let verbs: [&[&str]; 14] = [
        &["serve"],
        &["register"],
        &["init"],
        &["mcp"],
        &["bridge"],
        &["bridge", "openclaw"],
        &["bridge", "exec"],
        &["peers"],
        &["peer"],
        &["peer", "send"],
        &["peer", "listen"],
        &["backup"],
        &["move"],
        &["admin", "key"],
    ];
    for verb in verbs {
        let mut command = amb(&[verb, &["--help"]].concat());
        for secret in secrets {
            command.env(secret, "nats://ann:s3cret@127.0.0.1:4222");
        }
        let said = run(command).await;
        assert!(!said.contains("s3cret"), "{verb:?}: {said}");
    }
}
