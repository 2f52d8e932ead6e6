//! A directory has one layout, the one that it was made with.

use amb_core::{Code, Mailbox};
use amb_dir::doctor::{self, FindingKind};
use amb_dir::{DirOffice, DirOptions, Layout};
use serde_json::json;

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, open, text};

fn other(layout: Layout) -> Layout {
    match layout {
        Layout::Nanobot => Layout::Chipset,
        Layout::Chipset => Layout::Nanobot,
    }
}

#[tokio::test]
async fn a_layout_that_the_directory_does_not_have_is_refused() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        world.agent("ann").await;
        let asked = DirOptions { layout: Some(other(layout)), ..DirOptions::default() };
        let error = DirOffice::open(world.path(), asked).unwrap_err();
        assert_eq!(error.code(), Code::Invalid);
        let says = format!("has the layout {layout}");
        assert!(error.detail().contains(&says) && error.detail().contains("leave the layout out"), "{error}");
        for named in [None, Some(layout)] {
            let office = DirOffice::open(world.path(), DirOptions { layout: named, ..DirOptions::default() }).unwrap();
            assert_eq!(office.layout(), layout);
        }
    }
}

#[test]
fn mail_of_other_programs_tells_the_layout_too() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        match layout {
            Layout::Nanobot => world.drop_file("ben", "1745659200_x.msg.json", nanobot_file("x", "ben", json!({}))),
            Layout::Chipset => {
                world.drop_file("ben", "2026-03-05T10-30-00Z-x.json", chipset_file("x", "ben", json!({})))
            }
        }
        let asked = DirOptions { layout: Some(other(layout)), ..DirOptions::default() };
        assert_eq!(DirOffice::open(world.path(), asked).unwrap_err().code(), Code::Invalid, "{layout}");
    }
}

#[tokio::test]
async fn a_directory_that_got_the_other_layout_after_it_was_opened_is_not_written_to() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let late = open(world.path(), other(layout)).mailbox(name("late"));
        world.agent("ann").await;
        assert_eq!(late.register(Default::default()).await.unwrap_err().code(), Code::Invalid, "{layout}");
        assert_eq!(late.send(text("ann", "hi")).await.unwrap_err().code(), Code::Invalid, "{layout}");
        assert!(!world.path().join("late").exists(), "{layout}");
    }
}

#[tokio::test]
async fn the_doctor_names_mail_of_the_other_layout() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        world.agent("ben").await;
        // As an earlier version wrote it under `--layout`.
        let path = match layout {
            Layout::Nanobot => world.path().join("ben/2026-03-05T10-30-00Z-x.json"),
            Layout::Chipset => world.path().join("ben/inbox/1745659200_x.msg.json"),
        };
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, "{}").unwrap();
        let findings = doctor::examine(&world.office(), true).await.unwrap();
        let found = findings.iter().find(|found| found.kind == FindingKind::OtherLayout).unwrap();
        assert_eq!((found.path.as_path(), found.mended), (path.parent().unwrap(), false), "{layout}");
        assert!(found.detail.contains(path.file_name().unwrap().to_str().unwrap()), "{found:?}");
        assert!(path.exists(), "{layout}");
    }
}

#[tokio::test]
async fn the_doctor_leaves_the_files_of_a_project_alone() {
    const FILES: [&str; 5] =
        ["src/tsconfig.json", "web/package.json", "web/old.tmp", "web/archive/old.json", "old.tmp"];
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    for layout in [None, Some(Layout::Nanobot), Some(Layout::Chipset)] {
        let world = World::new(Layout::Nanobot);
        for file in FILES {
            let path = world.path().join(file);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(&path, "{ // comments").unwrap();
            fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }
        let office = DirOffice::open(world.path(), DirOptions { layout, ..DirOptions::default() }).unwrap();
        if layout.is_some() {
            office.mailbox(name("ann")).register(Default::default()).await.unwrap();
        } else {
            assert_eq!(office.mailbox(name("ann")).agents().await.unwrap(), []);
        }
        assert_eq!(doctor::examine(&office, true).await.unwrap(), [], "{layout:?}");
        assert!(FILES.iter().all(|file| world.path().join(file).exists()), "{layout:?}");
    }
}

#[tokio::test]
async fn the_doctor_leaves_a_file_in_a_mailbox_that_is_not_named_like_mail() {
    let world = World::new(Layout::Chipset);
    world.agent("mayor").await;
    world.drop_file("mayor", "package.json", "{not json");
    world.drop_file("mayor", "2026-03-05T10-30-00Z-a.json", "{not json");
    let findings = doctor::examine(&world.office(), true).await.unwrap();
    let package = world.path().join("mayor/package.json");
    let left = findings.iter().find(|found| found.path == package).unwrap();
    assert!(!left.mended && left.kind == FindingKind::CorruptMessage, "{left:?}");
    assert_eq!(world.files("mayor"), ["package.json"]);
    assert_eq!(world.files("mayor/corrupt"), ["2026-03-05T10-30-00Z-a.json"]);
}
