//! Logs that are not where the mount left them: an office restored from a backup, a mailbox whose log is gone.

use std::path::Path;

use amb_core::{Draft, Mailbox as _};
use amb_dir::Layout;
use serde_json::json;

use crate::mount_world::{Database, World, arrives, name, until};

#[tokio::test]
async fn an_older_log_on_either_side_is_read_anew_and_nothing_comes_twice() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;
    let exchange = async |world: &World, text: &str| {
        world.send(&ann, "coder", json!({"content": format!("{text} from the server")})).await;
        assert_eq!(arrives(&coder).await.text(), format!("{text} from the server"));
        coder.send(Draft::text(name("ann-mcp"), "Plan", format!("{text} from files"))).await.unwrap();
        assert_eq!(world.comes(&ann, "coder").await["parts"][0]["text"], format!("{text} from files"));
    };
    exchange(&world, "first").await;
    let mut kept = Vec::new();
    let world = world.pause(|database, _| kept = fs_err::read(file_of(database)).unwrap()).await;
    for n in 0..5 {
        exchange(&world, &format!("forgotten {n}")).await;
    }
    let world = world
        .pause(|database, root| {
            fs_err::write(file_of(database), &kept).unwrap();
            for lost in ["log", "known.json"] {
                let path = root.join(".amb/agents/ann-mcp").join(lost);
                assert!(!path.exists() || fs_err::remove_file(path).is_ok());
            }
        })
        .await;
    exchange(&world, "after").await;
    assert_eq!(coder.inbox(true).await.unwrap().unread(), 0, "nothing came twice to the files");
    let unread = world.server.get(&ann, "/messages?unread=true").await.expect(200);
    assert_eq!(unread["messages"], json!([]), "nor to the server");
}

fn file_of(database: &Database) -> std::path::PathBuf {
    match database {
        Database::Sqlite(file) => file.path().to_owned(),
        Database::Postgres(_) => panic!("no file"),
    }
}

#[tokio::test]
async fn a_server_with_another_database_does_not_take_the_mount_over() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;
    world.send(&ann, "coder", json!({"content": "before"})).await;
    assert_eq!(arrives(&coder).await.text(), "before");

    let (world, first) = world.with_database(Database::sqlite(), |_| {}).await;
    let other = world.server.register("ann-mcp").await;
    until(async || world.health().await["state"] == "failing").await;
    coder.send(Draft::text(name("ann-mcp"), "Plan", "for the first office")).await.unwrap();
    assert_eq!(world.server.get(&other, "/agents/coder").await.status, 404);

    let (world, second) = world.with_database(first, |_| {}).await;
    assert_eq!(world.comes(&ann, "coder").await["parts"][0]["text"], "for the first office");
    world.send(&ann, "coder", json!({"content": "after"})).await;
    assert_eq!(arrives(&coder).await.text(), "after");

    // Without the ledger the directory can be mounted in another office.
    let forget = |root: &Path| {
        let ledger = root.join(".amb/mount/ledger.db");
        fs_err::rename(&ledger, ledger.with_extension("old")).unwrap();
    };
    let (world, _first) = world.with_database(second, forget).await;
    world.connect(&other, "coder").await;
}
