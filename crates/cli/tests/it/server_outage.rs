//! The database goes away and comes back: the office says so, loses nothing, and needs nobody's help.

use amb_testing::PostgresDatabase;
use reqwest::Method;
use serde_json::json;

use crate::server_load::Load;
use crate::server_office::Office;
use crate::server_proxy::Proxy;

/// The database, and the URL that leads to it through a proxy.
async fn behind_a_proxy() -> (PostgresDatabase, Proxy, String) {
    let database = PostgresDatabase::fresh().await;
    let url = database.url();
    let (user, rest) = url.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let server = tokio::net::lookup_host(server).await.unwrap().next().unwrap();
    let proxy = Proxy::to(server).await;
    let url = format!("{user}@{}/{name}", proxy.address);
    (database, proxy, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_office_whose_database_is_cut_off_says_so_and_comes_back_by_itself() {
    let (_database, proxy, url) = behind_a_proxy().await;
    let office = Office::start(&url).await;
    let (alice, bob) = office.pair(100).await;
    let load = Load::begin(&[&office]).await;
    for round in 0..3 {
        load.advance(20 + round * 15).await;
        assert!(office.is_ready().await);
        proxy.cut();
        office.becomes_ready(false).await;
        load.is_refused().await;
        office.send(&alice, &bob, "hello").await.problem(503, "unavailable");
        office.get(&bob, "/inbox").await.problem(503, "unavailable");
        office.get(&bob, "/events?since=0").await.problem(503, "unavailable");
        let stranger = json!({"name": "stranger"});
        office.call(Method::POST, "/agents/register", None, Some(&stranger)).await.problem(503, "unavailable");
        office.call(Method::GET, "/health/live", None, None).await.expect(200);
        proxy.mend();
        office.becomes_ready(true).await;
    }
    load.advance(20).await;
    let answered = load.check(&office).await;
    assert!(answered > 60, "{answered}");
    // What was refused was not done.
    office.register("stranger").await;
    let inbox = office.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"], json!([]), "{inbox}");
    office.terminate();
    assert!(office.ended().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_office_whose_database_says_nothing_is_not_ready_until_it_does() {
    let (_database, proxy, url) = behind_a_proxy().await;
    let office = Office::start(&url).await;
    assert!(office.is_ready().await);
    proxy.silence();
    office.becomes_ready(false).await;
    office.call(Method::GET, "/health/live", None, None).await.expect(200);
    proxy.mend();
    office.becomes_ready(true).await;
    let (alice, bob) = office.pair(0).await;
    office.send(&alice, &bob, "hello").await.expect(201);
}

#[tokio::test]
async fn a_database_that_is_not_there_at_the_start_is_named_in_one_line() {
    let mut command = crate::server_office::serve_command("postgres://mailbox:secret@127.0.0.1:1/mailbox");
    let output = command.stderr(std::process::Stdio::piped()).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(stderr.contains("the database cannot be reached") && stderr.contains("Connection refused"), "{stderr}");
    assert!(!stderr.contains("secret") && !stderr.contains("panicked"), "{stderr}");
}
