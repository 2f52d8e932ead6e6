//! Moving an office from SQLite to PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use amb_core::office::TaskFilter;
use amb_core::transcript::Line;
use amb_core::{Code, Draft, TaskState};
use amb_store::conformance::{Desk, at, name};
use amb_store::testing::{PostgresDatabase, SqliteFile};
use amb_store::{PostgresStore, SqliteStore, copy_to_postgres};

#[tokio::test]
async fn a_move_that_was_interrupted_twice_arrives_whole() {
    let file = SqliteFile::fresh();
    let desk = Desk(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    let (alice, bob) = desk.pair().await;
    let carol = desk.enter("carol").await;
    desk.connect(&alice, &carol).await;
    for n in 0..30 {
        desk.say(&alice, &bob, &format!("s{}", n % 3), &format!("text {n} \"quoted\" é \0 end")).await;
    }
    let task =
        desk.send(&alice, Draft::task(bob.name.clone(), "s0", "work"), at(1)).await.unwrap().answer.task.unwrap();
    desk.set_task_state(&bob, &task.id, TaskState::Working, Some("on it".into()), at(2)).await.unwrap();
    desk.create_group(&alice, &name("crew"), at(1)).await.unwrap();
    desk.invite_to_group(&alice, &name("crew"), &carol.name, at(1)).await.unwrap();
    desk.join_group(&carol, &name("crew"), true, at(1)).await.unwrap();
    desk.send(&alice, Draft::text(name("crew"), "Standup", "hi"), at(1)).await.unwrap();
    let line =
        Line { role: "user".into(), content: "x".into(), sender: "ann".into(), message_id: Some("m".into()), ts: None };
    desk.transcript_append(&alice, &"feishu:1".parse().unwrap(), line, at(1)).await.unwrap();
    let once = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "s0", "once") };
    let first = desk.send(&alice, once.clone(), at(3)).await.unwrap().answer;
    desk.texts(&bob, &first.session_id, 2).await;
    let before = (desk.inbox(&bob, false, at(9)).await.unwrap(), desk.events(bob.key, 0, 500).await.unwrap());
    let exported = desk.export(&carol, None, 100).await.unwrap();
    let database = PostgresDatabase::fresh().await;
    let busy = copy_to_postgres(&file.path(), &database.url(), |_| ControlFlow::Continue(())).await;
    assert_eq!(busy.unwrap_err().code(), Code::Conflict, "not while a server has it open");
    desk.close().await;
    drop(desk);

    for stop in [3, 8] {
        let mut pages = 0;
        let (path, url) = (file.path(), database.url());
        let interrupted = copy_to_postgres(&path, &url, |_| {
            pages += 1;
            if pages == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(interrupted.await.unwrap_err().code(), Code::Unavailable);
    }
    let copied = copy_to_postgres(&file.path(), &database.url(), |_| ControlFlow::Continue(())).await.unwrap();
    assert!(copied.rows.iter().any(|(table, rows)| *table == "messages" && *rows > 30), "{copied:?}");
    let again = copy_to_postgres(&file.path(), &database.url(), |_| ControlFlow::Continue(())).await.unwrap();
    assert_eq!(again, copied, "a finished copy is found to be one");

    let desk = Desk(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    assert_eq!((desk.inbox(&bob, false, at(9)).await.unwrap(), desk.events(bob.key, 0, 500).await.unwrap()), before);
    assert_eq!(desk.export(&carol, None, 100).await.unwrap(), exported);
    assert_eq!(desk.send(&alice, once, at(10)).await.unwrap().answer, first, "an idempotency key still holds");
    assert_eq!(desk.tasks(&bob, TaskFilter::default(), 9).await.unwrap()[0].state, TaskState::Working);
    let next = desk.say(&alice, &bob, "s1", "on PostgreSQL").await;
    assert_eq!(next.news[0].entry.cursor.as_number(), Some(before.1.len() as u64 + 1));
    desk.enter("dave").await;
    while desk.index_mail().await.unwrap() > 0 {}
    let query = amb_core::office::SearchQuery { text: "quoted".into(), limit: Some(50), ..Default::default() };
    assert_eq!(desk.search(&bob, query).await.unwrap().len(), 30);
    desk.close().await;
}
