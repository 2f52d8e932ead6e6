//! kill -9 under load: what was answered is there once, in order, and every event arrives.

use amb_testing::{PostgresDatabase, SqliteFile};

use crate::server_load::Load;
use crate::server_office::Office;

/// How often the server is killed. `AMB_KILL_ROUNDS=50` is the full proof.
pub(crate) fn rounds() -> usize {
    std::env::var("AMB_KILL_ROUNDS").map_or(10, |rounds| rounds.parse().expect("AMB_KILL_ROUNDS is a number"))
}

async fn kill_again_and_again(database_url: &str) {
    let mut office = Office::start(database_url).await;
    let load = Load::begin(&[&office]).await;
    for round in 0..rounds() {
        // At another point each time: right after the start, and in the middle of full batches.
        load.advance(1 + round * 37 % 90).await;
        office.kill().await;
        office = Office::start(database_url).await;
        load.moved_to(0, &office);
    }
    load.advance(20).await;
    let answered = load.check(&office).await;
    println!("{} kills, {answered} sends answered", rounds());
    office.terminate();
    assert!(office.ended().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_before_a_kill_is_there_once_in_order_on_sqlite() {
    let file = SqliteFile::fresh();
    kill_again_and_again(&file.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_before_a_kill_is_there_once_in_order_on_postgres() {
    let database = PostgresDatabase::fresh().await;
    kill_again_and_again(&database.url()).await;
}
