//! `amb office`: offices by name.

use serde_json::json;

use crate::local_office::Home;
use crate::server_office::Office;

#[tokio::test]
async fn a_saved_office_is_used_from_then_on_and_for_once_by_its_name() {
    let home = Home::new();
    let server = Office::start(&format!("sqlite:{}", home.root.path().join("other.db").display())).await;
    let url = format!("http://{}", server.address);
    home.amb(&["--server", &url, "register", "ann"]).await;
    home.amb(&["--as", "ann", "office", "add", "work", &url]).await;
    let mail = home.root.path().join("mail");
    home.amb(&["--dir", mail.to_str().unwrap(), "register", "cod"]).await;
    home.amb(&["office", "add", "files", mail.to_str().unwrap()]).await;
    let (code, words) = home.refused(&["inbox"]).await;
    assert!(code == 3 && words.contains("amb up"), "saving is not using: {code} {words}");

    home.amb(&["office", "use", "work"]).await;
    home.amb(&["inbox"]).await;
    let files = home.json(&["--office", "files", "agents"]).await;
    assert_eq!(files["agents"][0]["name"], "cod");
    let list = home.json(&["office", "list"]).await;
    assert_eq!(
        list["offices"][0],
        json!({ "name": "work", "place": url, "used": "profile", "agents": ["ann"] }),
        "{list}"
    );
    // The environment of the seeds goes before the profile.
    let mut said = home.command(&["--json", "agents"]);
    let said = said.env("AMB_DIR", &mail).output().await.unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("cod"));

    home.amb(&["office", "use", "local"]).await;
    let (code, _) = home.refused(&["inbox"]).await;
    assert_eq!(code, 3);
    home.amb(&["office", "remove", "work", "--keys"]).await;
    let (code, words) = home.refused(&["--server", &url, "inbox"]).await;
    assert!(code == 2 && words.contains("you have no agent"), "{code} {words}");
}

#[tokio::test]
async fn an_unknown_office_gets_a_suggestion() {
    let home = Home::new();
    home.amb(&["office", "add", "work", "https://mail.example"]).await;
    let (code, words) = home.refused(&["office", "use", "wrok"]).await;
    assert!(code == 3 && words.contains("did you mean \"work\"?"), "{code} {words}");
    let (code, words) = home.refused(&["office", "add", "work", "https://other.example"]).await;
    assert!(code == 5 && words.contains("amb office remove work"), "{code} {words}");
    let (code, _) = home.refused(&["office", "add", "local", "https://other.example"]).await;
    assert_eq!(code, 2);
}

#[tokio::test]
async fn comments_in_the_profile_are_kept() {
    let home = Home::new();
    let file = home.root.path().join(".config/amb/config.toml");
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    fs_err::write(&file, "# mine\nas = \"ann\" # me\n").unwrap();
    home.amb(&["office", "add", "work", "mail.example:8000"]).await;
    home.amb(&["office", "use", "work"]).await;
    let text = fs_err::read_to_string(&file).unwrap();
    assert!(text.starts_with("# mine\nas = \"ann\" # me\n"), "{text}");
    assert!(text.contains("office = \"work\"") && text.contains("[offices.work]"), "{text}");
    home.amb(&["office", "remove", "work"]).await;
    assert_eq!(fs_err::read_to_string(&file).unwrap().matches("work").count(), 0);
    // A profile whose office is gone can be mended by the verb that made it.
    fs_err::write(&file, "office = \"gone\"\n").unwrap();
    let (code, words) = home.refused(&["inbox"]).await;
    assert!(code == 3 && words.contains("gone"), "{code} {words}");
    home.amb(&["office", "use", "local"]).await;
    let (code, words) = home.refused(&["inbox"]).await;
    assert!(code == 3 && words.contains("amb up"), "{code} {words}");
}

#[tokio::test]
async fn a_key_in_the_environment_goes_before_the_agent_of_the_profile() {
    let home = Home::new();
    let server = Office::start(&format!("sqlite:{}", home.root.path().join("other.db").display())).await;
    let url = format!("http://{}", server.address);
    home.amb(&["--server", &url, "register", "ann", "ben"]).await;
    let config = home.root.path().join(".config/amb");
    let keys: serde_json::Value = serde_json::from_slice(&fs_err::read(config.join("keys.json")).unwrap()).unwrap();
    let key = keys[&url]["ben"].as_str().unwrap().to_owned();
    let profiles =
        ["as = \"ann\"".to_owned(), format!("office = \"work\"\n[offices.work]\nserver = \"{url}\"\nas = \"ann\"")];
    for profile in profiles {
        fs_err::write(config.join("config.toml"), &profile).unwrap();
        let inbox = async |key: &str| {
            let mut verb = home.command(&["inbox"]);
            if !profile.contains("offices") {
                verb.env("MAILBOX_SERVER_URL", &url);
            }
            verb.env("MAILBOX_API_KEY", key).output().await.unwrap()
        };
        assert_eq!(inbox("amb_garbage").await.status.code(), Some(4), "{profile}");
        assert!(inbox(&key).await.status.success(), "{profile}");
    }
}
