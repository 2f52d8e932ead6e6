//! `amb key`: replacing the key of an agent, and storing one that somebody else created.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::household::sqlite;
use crate::mcp_client::amb;
use crate::server_office::{Office, soon};

/// A user at an office, perhaps through another address.
struct User {
    home: TempDir,
    url: String,
}

impl User {
    fn at(url: &str) -> Self {
        Self { home: tempfile::tempdir().unwrap(), url: url.to_owned() }
    }

    async fn run_with(&self, arguments: &[&str], stdin: &str) -> Output {
        let mut command = amb(self.home.path());
        command.args(["--server", &self.url]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes()).await;
        soon(child.wait_with_output()).await.unwrap()
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, "").await
    }

    async fn does(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments).await;
        assert!(ended.status.success(), "{arguments:?}: {}", said(&ended));
        said(&ended)
    }

    async fn fails(&self, arguments: &[&str], stdin: &str) -> (i32, String) {
        let ended = self.run_with(arguments, stdin).await;
        (ended.status.code().unwrap(), said(&ended))
    }

    /// The stored key of an agent.
    fn key(&self, name: &str) -> Option<String> {
        let path = self.home.path().join(".config/amb/keys.json");
        let keys: Value = serde_json::from_slice(&fs_err::read(&path).ok()?).unwrap();
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        keys[self.url.trim_end_matches('/')][name].as_str().map(str::to_owned)
    }
}

fn said(ended: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

async fn office() -> (TempDir, Office) {
    let data = tempfile::tempdir().unwrap();
    let office = Office::start(&sqlite(data.path())).await;
    (data, office)
}

#[tokio::test]
async fn a_rotated_key_is_stored_and_the_old_one_works_until_its_grace_ends() {
    let (_data, office) = office().await;
    let user = User::at(&office.url(""));
    user.does(&["register", "ann"]).await;
    let first = user.key("ann").unwrap();
    let text = user.does(&["key", "rotate"]).await;
    let second = user.key("ann").unwrap();
    assert!(second != first && !text.contains(&second) && text.contains("until"), "{text}");
    office.inbox_with(&first).await.expect(200);
    let document: Value =
        serde_json::from_str(&user.does(&["--as", "ann", "key", "rotate", "--grace", "0", "--json"]).await).unwrap();
    assert_eq!((&document["name"], document.get("api_key")), (&"ann".into(), None), "{document}");
    assert!(document.get("previous_key_until").is_none() && document["key_file"].is_string(), "{document}");
    assert_eq!(office.inbox_with(&second).await.status, 401);
    let shown = user.does(&["key", "rotate", "--show"]).await;
    assert!(shown.starts_with(&user.key("ann").unwrap()), "{shown}");
    user.does(&["inbox"]).await;
    // In its grace period a key cannot be replaced.
    let mut stale = amb(user.home.path());
    stale.args(["--server", &user.url, "key", "rotate"]);
    let ended = soon(stale.env("MAILBOX_API_KEY", &first).output()).await.unwrap();
    assert_eq!(ended.status.code(), Some(4), "{}", said(&ended));
    let files = soon(amb(user.home.path()).args(["--dir", "mail", "--as", "ann", "key", "rotate"]).output()).await;
    assert_eq!(files.unwrap().status.code(), Some(7));
}

#[tokio::test]
async fn an_imported_key_is_checked_and_stored() {
    let (_data, office) = office().await;
    let (user, elsewhere) = (User::at(&office.url("")), User::at(&office.url("")));
    user.does(&["register", "ann", "ben"]).await;
    let (ann, ben) = (user.key("ann").unwrap(), user.key("ben").unwrap());
    let import = ["key", "import", "ann"];
    assert_eq!(elsewhere.fails(&import, "amb_wrong\n").await.0, 4);
    assert_eq!(elsewhere.fails(&import, "").await.0, 2);
    let (code, text) = elsewhere.fails(&import, &ben).await;
    assert!(code == 2 && text.contains("ben") && !text.contains(&ben), "{text}");
    assert_eq!(elsewhere.key("ann"), None);
    let imported = elsewhere.run_with(&import, &format!("{ann}\n")).await;
    assert!(imported.status.success() && !said(&imported).contains(&ann), "{}", said(&imported));
    assert_eq!(elsewhere.key("ann"), Some(ann));
    elsewhere.does(&["--as", "ann", "inbox"]).await;
}

#[tokio::test]
async fn where_the_answer_to_a_rotation_is_lost_the_error_says_what_to_do() {
    let (_data, office) = office().await;
    let user = User::at(&format!("http://{}", losing_rotations(office.address).await));
    user.does(&["register", "ann"]).await;
    let key = user.key("ann").unwrap();
    let (code, text) = user.fails(&["key", "rotate"], "").await;
    assert!(code == 6 && text.contains("amb admin key ann") && text.contains("amb key import ann"), "{text}");
    assert_eq!(user.key("ann").as_ref(), Some(&key), "the old key is kept");
    office.inbox_with(&key).await.expect(200);
}

/// A way to an office on which no answer to a rotation comes back.
async fn losing_rotations(office: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = TcpStream::connect(office).await.unwrap();
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let (mut asked, mut answered, mut rotates) = (vec![0; 65_536], vec![0; 65_536], false);
                loop {
                    tokio::select! {
                        Ok(count @ 1..) = from_client.read(&mut asked) => {
                            rotates |= String::from_utf8_lossy(&asked[..count]).contains("rotate-key");
                            to_server.write_all(&asked[..count]).await.unwrap();
                        }
                        Ok(count @ 1..) = from_server.read(&mut answered) => {
                            if rotates {
                                return;
                            }
                            to_client.write_all(&answered[..count]).await.unwrap();
                        }
                        else => return,
                    }
                }
            });
        }
    });
    address
}
