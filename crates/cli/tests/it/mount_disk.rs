//! A mounted directory on a disk that is full or read-only: it is said, mail waits, and none is lost.

use amb_core::{Draft, Mailbox as _};
use amb_dir::Layout;
use serde_json::json;

use crate::mount_world::{Database, World, arrives, name, until};
use crate::server_disk::Disk;

#[tokio::test]
async fn a_full_or_read_only_directory_is_seen_in_health_and_loses_nothing() {
    let Some(disk) = Disk::mount("4m") else { return };
    let world = World::at(Database::sqlite(), disk.path(), Layout::Nanobot, &["--mount-open"]).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;
    for (n, trouble) in ["full", "read-only"].into_iter().enumerate() {
        coder.send(Draft::text(name("ann-mcp"), "Plan", format!("before {n}"))).await.unwrap();
        assert_eq!(world.comes(&ann, "coder").await["parts"][0]["text"], format!("before {n}"));
        let read_only = if trouble == "full" {
            disk.fill();
            None
        } else {
            Some(disk.read_only("coder"))
        };
        // Mail is accepted: the office has it. It waits for the directory.
        let sent = world.send(&ann, "coder", json!({"content": format!("during {n}")})).await;
        until(async || world.health().await["state"] == "failing").await;
        assert_eq!(world.receipt(&ann, &sent["message_id"]).await, "queued", "{trouble}");
        assert!(world.server.is_ready().await, "mail that stays in the office is not stopped by it");
        match read_only {
            None => disk.free(),
            Some(read_only) => drop(read_only),
        }
        assert_eq!(arrives(&coder).await.text(), format!("during {n}"));
        until(async || world.health().await["state"] == "mounted").await;
        until(async || world.receipt(&ann, &sent["message_id"]).await == "read").await;
    }
}
