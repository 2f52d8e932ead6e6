//! A full disk: refused clearly, nothing lost, and well again when there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server_office::Office;

/// A small disk of its own, unmounted when this is dropped.
pub(crate) struct Disk(TempDir);

impl Disk {
    /// `None` where mounting is not permitted.
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=0700");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(dir)),
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes until nothing more fits.
    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut file = fs_err::File::create(self.path().join("filler")).unwrap();
        for block in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![1; block]).is_ok() {}
        }
    }

    pub(crate) fn free(&self) {
        fs_err::remove_file(self.path().join("filler")).unwrap();
    }

    /// Makes a directory on it read-only, until what this answers is dropped.
    pub(crate) fn read_only(&self, under: &str) -> ReadOnly {
        let path = self.path().join(under);
        let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&path).status().unwrap();
        assert!(mount(&["--bind", path.to_str().unwrap()]).success());
        assert!(mount(&["-o", "remount,bind,ro"]).success());
        ReadOnly(path)
    }
}

/// A directory that is read-only while this is there.
pub(crate) struct ReadOnly(PathBuf);

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_refused_clearly_and_loses_nothing() {
    let Some(disk) = Disk::mount("12m") else { return };
    let url = format!("sqlite:{}", disk.path().join("mail.db").display());
    let mut office = Office::start(&url).await;
    let (alice, bob) = office.pair(0).await;
    let text = "x".repeat(5_000);
    let mut accepted = Vec::new();
    let mut number = 0;
    for _ in 0..3 {
        for _ in 0..10 {
            number += 1;
            let content = format!("{number} {text}");
            accepted.push((office.send(&alice, &bob, &content).await.expect(201), content));
        }
        disk.fill();
        // What is left of room within the files may take a few more.
        let mut refused = 0;
        while refused < 5 {
            number += 1;
            assert!(number < 10_000, "the disk is not full");
            let content = format!("{number} {text}");
            let answer = office.send(&alice, &bob, &content).await;
            if answer.status == 201 {
                accepted.push((answer.body, content));
            } else {
                answer.problem(503, "unavailable");
                refused += 1;
            }
        }
        let said = office.call(reqwest::Method::GET, "/health/ready", None, None).await.problem(503, "unavailable");
        assert!(said["detail"].as_str().unwrap().contains("disk"), "{said}");
        // Reading still works, and shows what was accepted and nothing else.
        let session = accepted[0].0["session_id"].as_str().unwrap().to_owned();
        check(&office.history(&alice, &session).await, &accepted);
        disk.free();
        assert!(office.is_ready().await);
        number += 1;
        let content = format!("{number} after");
        accepted.push((office.send(&alice, &bob, &content).await.expect(201), content));
        check(&office.history(&alice, &session).await, &accepted);
        office.kill().await;
        office = Office::start(&url).await;
        check(&office.history(&alice, &session).await, &accepted);
    }
    office.terminate();
    assert!(office.ended().await.success());
}

fn check(kept: &[(String, String)], accepted: &[(serde_json::Value, String)]) {
    let accepted: Vec<_> = accepted
        .iter()
        .map(|(sent, content)| (sent["message_id"].as_str().unwrap().to_owned(), content.clone()))
        .collect();
    assert!(kept == accepted, "kept {} of {} accepted", kept.len(), accepted.len());
}
