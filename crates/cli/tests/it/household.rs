//! A household and a stranger at one office, through the binary: each person has a home of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use amb_testing::PostgresDatabase;
use serde_json::Value;
use tempfile::TempDir;

use crate::mcp_client::amb;
use crate::server_office::{Office, serve_command, soon};

/// A user with a home directory of its own.
pub(crate) struct User(pub(crate) TempDir);

impl User {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        soon(amb(self.0.path()).env("USER", "ann").args(args).output()).await.unwrap()
    }

    pub(crate) async fn does(&self, args: &[&str]) -> String {
        let ended = self.run(args).await;
        assert!(ended.status.success(), "{args:?}: {}", said(&ended));
        String::from_utf8(ended.stdout).unwrap()
    }

    /// The exit code and stderr of a command that must fail.
    pub(crate) async fn fails(&self, args: &[&str]) -> (i32, String) {
        let ended = self.run(args).await;
        assert!(!ended.status.success(), "{args:?}: {}", said(&ended));
        (ended.status.code().unwrap(), said(&ended))
    }

    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.does(&[args, &["--json"]].concat()).await).unwrap()
    }

    /// The stored key of an agent at the only server.
    pub(crate) fn key(&self, name: &str) -> String {
        let keys = fs_err::read(self.0.path().join(".config/amb/keys.json")).unwrap();
        let keys: Value = serde_json::from_slice(&keys).unwrap();
        keys.as_object().unwrap().values().next().unwrap()[name].as_str().unwrap().to_owned()
    }

    fn tokens(&self) -> Value {
        let path = self.0.path().join(".config/amb/household.json");
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
    }
}

fn said(ended: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

/// An office on loopback that this user runs.
pub(crate) async fn office_of(user: &User, database: &str) -> Office {
    let mut command = serve_command(database);
    command.env("HOME", user.0.path()).env_remove("XDG_CONFIG_HOME").env_remove("AMB_NO_HOUSEHOLD");
    Office::start_with(command).await
}

pub(crate) fn sqlite(home: &Path) -> String {
    format!("sqlite:{}", home.join("mail.db").display())
}

#[tokio::test]
async fn a_household_writes_without_codes_and_a_stranger_needs_one() {
    let (ann, stranger) = (User::new(), User::new());
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    for name in ["coder", "writer"] {
        ann.does(&["register", name, "--household", "--server", &url]).await;
    }
    stranger.does(&["register", "stranger", "--server", &url]).await;
    let send = |from: &'static str, to: &'static str| {
        ["--server", url.as_str(), "--as", from, "send", to, "hello", "--subject", "Plan"]
    };
    ann.does(&send("coder", "writer")).await;
    ann.does(&send("writer", "coder")).await;
    assert_eq!(stranger.fails(&send("stranger", "coder")).await.0, 4);
    assert_eq!(ann.fails(&send("coder", "stranger")).await.0, 4);
    let (status, text) = stranger.fails(&["register", "spy", "--household", "--server", &url]).await;
    assert!(status == 3 && text.contains("amb invite"), "{text}");

    // The person is created by the first command without --as.
    let household = ann.json(&["household", "--server", &url]).await;
    let members: Vec<_> = household["members"].as_array().unwrap().iter().map(|m| (&m["name"], &m["person"])).collect();
    assert_eq!(format!("{members:?}").matches("Bool(true)").count(), 1, "{members:?}");
    assert_eq!(household["members"][0]["name"], "ann");
    ann.does(&send("ann", "coder")).await;
    let read = ann.does(&["--server", &url, "--as", "coder", "read", "ann"]).await;
    assert!(read.contains("\nann (person)  "), "{read}");
    ann.does(&send("coder", "ann")).await;
    assert_eq!(ann.tokens()[&url.trim_end_matches('/')]["person"], "ann");
    let agents = ann.json(&["agents", "--as", "coder", "--server", &url]).await;
    assert_eq!((&agents["agents"][0]["name"], &agents["agents"][0]["person"]), (&"ann".into(), &true.into()));

    let code = stranger.does(&["--as", "stranger", "connect", "coder", "--server", &url]).await;
    ann.does(&["--as", "coder", "approve", code.trim(), "--server", &url]).await;
    stranger.does(&send("stranger", "coder")).await;
    assert_eq!(stranger.fails(&send("stranger", "writer")).await.0, 4, "a code is for one");
    assert_eq!(ann.fails(&["household", "person", "bea", "--server", &url]).await.0, 5);
    office.terminate();
    office.ended().await;
    // The next start founds no second household.
    office_of(&ann, &sqlite(ann.0.path())).await;
    assert_eq!(ann.tokens().as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn no_household_is_founded_where_that_is_turned_off() {
    let ann = User::new();
    let mut command = serve_command(&sqlite(ann.0.path()));
    command
        .env("HOME", ann.0.path())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("AMB_NO_HOUSEHOLD")
        .arg("--no-household");
    let office = Office::start_with(command).await;
    assert!(!ann.0.path().join(".config/amb/household.json").exists());
    assert_eq!(ann.fails(&["register", "coder", "--household", "--server", &office.url("")]).await.0, 3);
    ann.does(&["register", "coder", "--server", &office.url("")]).await;
}

/// Invites a second machine, and revokes it at another replica where there is one.
async fn another_machine(ann: &User, at: &Office, revoked_at: &Office) {
    let (url, other) = (at.url(""), revoked_at.url(""));
    ann.does(&["register", "coder", "--household", "--server", &url]).await;
    let command = ann.does(&["invite", "laptop", "--server", &url]).await;
    let laptop = User::new();
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[..2], ["amb", "join"]);
    laptop.does(&words[1..]).await;
    laptop.does(&["register", "there", "--household", "--server", &url]).await;
    let send = ["--as", "there", "send", "coder", "hello", "--subject", "Plan", "--server"];
    laptop.does(&[&send[..], &[url.as_str()]].concat()).await;
    // An invited machine has no person of its own, and cannot invite.
    assert_eq!(laptop.fails(&["--as", "there", "invite", "more", "--server", &url]).await.0, 4);
    let household = ann.json(&["household", "--server", &url]).await;
    let machines = household["machines"].as_array().unwrap();
    let machine = machines.iter().find(|machine| machine["label"] == "laptop").unwrap()["id"].as_str().unwrap();
    // The key and the token of the same office under its other address.
    for file in ["household.json", "keys.json"] {
        let path = ann.0.path().join(".config/amb").join(file);
        let text = fs_err::read_to_string(&path).unwrap();
        fs_err::write(&path, text.replace(url.trim_end_matches('/'), other.trim_end_matches('/'))).unwrap();
    }
    ann.does(&["household", "remove", "--machine", machine, "--server", &other]).await;
    assert_eq!(laptop.fails(&[&send[..], &[url.as_str()]].concat()).await.0, 4, "revoked");
    assert_eq!(laptop.fails(&["register", "late", "--household", "--server", &url]).await.0, 4);
}

#[tokio::test]
async fn a_revoked_machine_leaves_the_household() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    another_machine(&ann, &office, &office).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_revoked_at_one_replica_is_revoked_at_the_other() {
    let (ann, database) = (User::new(), PostgresDatabase::fresh().await);
    let (one, other) = (office_of(&ann, &database.url()).await, office_of(&ann, &database.url()).await);
    assert_eq!(ann.tokens().as_object().unwrap().len(), 1, "of two replicas one founds the household");
    another_machine(&ann, &one, &other).await;
}

#[tokio::test]
async fn the_operator_founds_a_household_and_renews_its_token() {
    let (operator, bea) = (User::new(), User::new());
    let database = PostgresDatabase::fresh().await;
    let office = Office::start(&database.url()).await;
    let url = office.url("");
    let token = operator.does(&["admin", "household", "--database-url", &database.url()]).await;
    bea.does(&["join", &url, token.trim()]).await;
    bea.does(&["register", "coder", "--household", "--server", &url]).await;
    assert_eq!(
        bea.json(&["household", "--server", &url]).await["members"][0]["name"],
        "ann",
        "by the name of the user"
    );
    let renew = ["admin", "household", "--renew", "coder", "--database-url", &database.url()];
    let renewed = operator.does(&renew).await;
    assert_eq!(bea.fails(&["register", "writer", "--household", "--server", &url]).await.0, 4);
    bea.does(&["join", &url, renewed.trim()]).await;
    bea.does(&["register", "writer", "--household", "--server", &url]).await;
}

#[tokio::test]
async fn the_person_is_found_again_by_its_key_after_a_renewed_token_is_stored() {
    let (operator, bea) = (User::new(), User::new());
    let database = PostgresDatabase::fresh().await;
    let office = Office::start(&database.url()).await;
    let url = office.url("");
    let token = operator.does(&["admin", "household", "--database-url", &database.url()]).await;
    bea.does(&["join", &url, token.trim()]).await;
    for name in ["coder", "writer"] {
        bea.does(&["register", name, "--household", "--server", &url]).await;
    }
    bea.does(&["household", "--server", &url]).await;
    let renewed = operator.does(&["admin", "household", "--renew", "ann", "--database-url", &database.url()]).await;
    bea.does(&["join", &url, renewed.trim()]).await;
    assert_eq!(bea.json(&["household", "--server", &url]).await["members"][0]["name"], "ann");
    bea.does(&["invite", "laptop", "--server", &url]).await;
    bea.does(&["log", "--server", &url]).await;
    assert_eq!(bea.tokens()[url.trim_end_matches('/')]["person"], "ann");
    // The owner's token on a machine that has no key of the person.
    let elsewhere = User::new();
    elsewhere.does(&["join", &url, renewed.trim()]).await;
    let (status, text) = elsewhere.fails(&["household", "--server", &url]).await;
    assert!(status == 5 && text.contains("ann"), "{text}");
}

#[tokio::test]
async fn a_token_that_the_office_does_not_know_is_not_stored() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    let before = ann.tokens();
    let (status, text) = ann.fails(&["join", &url, "bad"]).await;
    assert!(status == 4 && text.contains("not known here"), "{text}");
    assert_eq!(ann.fails(&["join", "127.0.0.1:1", "x"]).await.0, 6);
    assert_eq!(ann.tokens(), before);
    ann.does(&["register", "coder", "--household", "--server", &url]).await;
}

#[tokio::test]
async fn an_invitation_does_not_replace_the_owners_token() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    let command = ann.does(&["invite", "laptop", "--server", &url]).await;
    let words: Vec<&str> = command.split_whitespace().collect();
    let before = ann.tokens();
    let (status, text) = ann.fails(&words[1..]).await;
    assert!(status == 5 && text.contains("owner's token"), "{text}");
    assert_eq!(ann.tokens(), before);
    // The owner's own token again changes nothing; the person stays.
    let stored = before[url.trim_end_matches('/')]["token"].as_str().unwrap();
    ann.does(&["join", &url, stored]).await;
    assert_eq!(ann.tokens()[url.trim_end_matches('/')]["person"], "ann");
    // A machine's token is replaced by any other.
    let laptop = User::new();
    laptop.does(&words[1..]).await;
    let second = ann.does(&["invite", "more", "--server", &url]).await;
    laptop.does(&second.split_whitespace().collect::<Vec<_>>()[1..]).await;
    laptop.does(&["join", &url, stored]).await;
    assert_eq!(laptop.tokens()[url.trim_end_matches('/')]["person"], Value::Null, "its key is elsewhere");
}

#[tokio::test]
async fn an_operator_is_named_in_the_database_and_signs_in() {
    let ann = User::new();
    let database = PostgresDatabase::fresh().await;
    let office = Office::start(&database.url()).await;
    let url = office.url("");
    ann.does(&["register", "watcher", "--server", &url]).await;
    let sign_in = ["--as", "watcher", "--server", &url, "dashboard", "--no-open"];
    assert_eq!(ann.fails(&sign_in).await.0, 4, "no agent sees the dashboard");
    let database = database.url();
    let operator = |name: &'static str| ["admin", "operator", name, "--database-url", database.as_str()];
    assert_eq!(ann.json(&operator("watcher")).await["operator"], true);
    assert!(ann.does(&sign_in).await.contains("/dashboard/sign-in?link="));
    assert_eq!(ann.json(&[&operator("watcher")[..], &["--revoke"]].concat()).await["operator"], false);
    assert_eq!(ann.fails(&sign_in).await.0, 4);
    assert_eq!(ann.fails(&operator("nobody-here")).await.0, 3);
}
