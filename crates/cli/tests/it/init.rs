//! `amb init` as its users run it: what a client gets, and what it is warned of.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::mcp_client::Model;
use crate::server_office::Office;

/// The card of an agent of the directory.
fn card(machine: &Machine, name: &str) -> Value {
    let listed = machine.does(&["--dir", "mail", "agents", "--json"]).stdout;
    let agents: Value = serde_json::from_slice(&listed).unwrap();
    let found = agents["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {agents}")).clone()
}

const CONFIG: &str = r#"{"channels": {"mailbox": {"enabled": true, "agentId": "coder", "mailboxesRoot": "~/mail",
    "allowFrom": ["ann"], "maxConcurrentTasks": 1, "description": "writes code", "capabilities": ["rust"]}}}"#;

#[test]
fn settings_in_nanobots_configuration_are_on_the_card() {
    let machine = Machine::new();
    machine.write(".nanobot/config.json", CONFIG);
    let mail = machine.path("mail").display().to_string();
    machine.does(&["--dir", &mail, "--as", "coder", "init", "nanobot"]);
    let card = card(&machine, "coder");
    assert_eq!(card["allow_from"], json!(["ann"]), "{card}");
    assert_eq!((&card["max_concurrent_tasks"], &card["description"]), (&json!(1), &json!("writes code")));
    assert_eq!(card["capabilities"], json!(["rust"]));
    assert_eq!(machine.read_json(".nanobot/config.json")["channels"]["mailbox"]["allowFrom"], json!(["ann"]));
    for name in ["ann", "bob"] {
        machine.does(&["--dir", "mail", "register", name]);
    }
    machine.does(&["--dir", "mail", "--as", "ann", "send", "coder", "hello"]);
    let refused = machine.run(&["--dir", "mail", "--as", "bob", "send", "coder", "hello"]);
    assert_eq!(refused.status.code(), Some(4), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn nanobot_with_the_channel_keeps_its_settings_and_gets_no_mcp_server() {
    let machine = Machine::new();
    machine.write(".nanobot/config.json", CONFIG);
    machine.write("venv/lib/python3.12/site-packages/agent_mailbox/nanobot/channel.py", "");
    machine.write("venv/bin/nanobot", "#!/usr/bin/python3\n");
    let path = format!("{}:/usr/bin:/bin", machine.path("venv/bin").display());
    // Neither the agent nor the directory is given: the section has both.
    let ended = machine.command(&["init", "nanobot"]).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && said.contains("hears its mail by itself"), "{said}");
    let config = machine.read_json(".nanobot/config.json");
    assert_eq!(config.get("tools"), None, "{config}");
    assert_eq!(config["channels"]["mailbox"]["mailboxesRoot"], json!(machine.path("mail")), "{config}");
    assert_eq!(config["channels"]["mailbox"]["maxConcurrentTasks"], json!(1), "{config}");
    assert_eq!(card(&machine, "coder")["allow_from"], json!(["ann"]));
}

#[tokio::test]
async fn a_nanobot_that_names_a_server_is_registered_there() {
    let machine = Machine::new();
    let office = Office::start(&format!("sqlite:{}", machine.path("mail.db").display())).await;
    let server = office.url("");
    let config = CONFIG.replace("\"mailboxesRoot\": \"~/mail\"", &format!("\"serverUrl\": \"{server}\""));
    machine.write(".nanobot/config.json", &config);
    let arguments = ["init", "nanobot", "--plugin", "--json"];
    let ended = tokio::process::Command::from(machine.command(&arguments)).output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&told["agent"], &told["registered"]), (&json!("coder"), &json!(true)), "{told}");
    let section = machine.read_json(".nanobot/config.json")["channels"]["mailbox"].clone();
    assert_eq!(section.get("mailboxesRoot"), None, "{section}");
    assert!(!machine.path(".nanobot/mailboxes").exists() && machine.path(".config/amb/keys.json").exists());
    // The channel would use the server, and nothing would read the directory.
    let refused = machine.run(&["--dir", "mail", "init", "nanobot", "--plugin"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("serverUrl"), "{said}");
}

#[tokio::test]
async fn amb_mcp_applies_nanobots_configuration() {
    let machine = Machine::new();
    machine.write(".nanobot/config.json", CONFIG);
    let arguments = ["--dir", "mail", "--as", "coder", "mcp"];
    let mut command = tokio::process::Command::from(machine.command(&arguments));
    let mut model = Model::start(&mut command).await;
    model.call("mailbox_check", json!({})).await;
    assert_eq!(card(&machine, "coder")["allow_from"], json!(["ann"]));
    // A card with names in allow_from is not widened by a star, which is the default where nobody chose.
    machine.write(".nanobot/config.json", &CONFIG.replace("[\"ann\"]", "[\"*\"]"));
    assert!(model.close().await.success());
    let mut command = tokio::process::Command::from(machine.command(&arguments));
    let mut model = Model::start(&mut command).await;
    model.call("mailbox_check", json!({})).await;
    assert_eq!(card(&machine, "coder")["allow_from"], json!(["ann"]));
    assert!(model.close().await.success());
    // A warning says that the star is ignored, and what to do.
    let mut waits = machine.command(&["--dir", "mail", "--as", "coder", "mcp"]);
    let ended = waits.stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("hears ann alone") && said.contains("amb register coder --allow-from '*'"), "{said}");
}

#[tokio::test]
async fn amb_mcp_applies_the_configuration_named_at_init() {
    let machine = Machine::new();
    machine.write("bot/config.json", CONFIG);
    let mail = machine.path("mail").display().to_string();
    machine.does(&["--dir", &mail, "--as", "coder", "init", "nanobot", "--config", "bot/config.json"]);
    let written = fs_err::read_to_string(machine.path("bot/config.json")).unwrap();
    machine.write("bot/config.json", &written.replace("\"ann\"", "\"bob\""));
    let server = machine.read_json("bot/config.json")["tools"]["mcpServers"]["mailbox"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let arguments: Vec<String> = server["args"].as_array().unwrap().iter().map(text).collect();
    let mut command = machine.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, value) in server["env"].as_object().unwrap() {
        command.env(name, text(value));
    }
    let mut model = Model::start(&mut tokio::process::Command::from(command)).await;
    model.call("mailbox_check", json!({})).await;
    assert_eq!(card(&machine, "coder")["allow_from"], json!(["bob"]));
    assert!(model.close().await.success());
}

#[tokio::test]
async fn a_key_in_another_configuration_directory_is_found_from_a_clients_bare_environment() {
    let machine = Machine::new();
    let office = Office::start(&format!("sqlite:{}", machine.path("mail.db").display())).await;
    let (elsewhere, server) = (machine.path("elsewhere"), office.url(""));
    let arguments = ["--server", &server, "--as", "coder", "init", "openclaw"];
    let ended = tokio::process::Command::from(machine.command(&arguments)).env("XDG_CONFIG_HOME", &elsewhere).output();
    let ended = ended.await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let entry = &machine.read_json(".openclaw/openclaw.json")["mcp"]["servers"]["mailbox"];
    // The client starts the entry with HOME, PATH and the entry's own variables.
    let words: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut command = tokio::process::Command::from(machine.command(&words));
    for (name, value) in entry["env"].as_object().expect("an environment") {
        command.env(name, value.as_str().unwrap());
    }
    let mut model = Model::start(&mut command).await;
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 0);
    assert!(model.close().await.success());
}

#[test]
fn init_warns_of_a_client_that_will_not_find_the_program() {
    let machine = Machine::new();
    let ended = machine.does(&["--dir", "mail", "--as", "ann", "init", "claude-code"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("amb is not on your PATH"), "{said}");
    let ended = machine.does(&["--dir", "mail", "--as", "ann", "init", "claude-code", "--json"]);
    let document: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(document["warnings"].as_array().unwrap().len(), 1, "{document}");
    let ended = machine.does(&["--dir", "mail", "--as", "ann", "init", "gemini"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("folder that it trusts") && !said.contains("warning"), "{said}");
}

#[test]
fn a_client_without_a_name_is_named_after_its_program_and_keeps_an_earlier_name() {
    let machine = Machine::new();
    let clients = [
        ("codex", ".codex/config.toml"),
        ("claude-code", ".mcp.json"),
        ("opencode", ".config/opencode/opencode.json"),
        ("zed", ".config/zed/settings.json"),
    ];
    for (client, file) in clients {
        let said = machine.does(&["--dir", "mail", "init", client]).stderr;
        assert!(String::from_utf8_lossy(&said).contains(&format!("the agent is {client}; --as NAME")), "{client}");
        card(&machine, client);
        machine.does(&["--dir", "mail", "--as", "ann", "init", client]);
        let named = fs_err::read_to_string(machine.path(file)).unwrap();
        assert!(named.contains("\"ann\""), "{named}");
        machine.does(&["--dir", "mail", "init", client]);
        assert_eq!(fs_err::read_to_string(machine.path(file)).unwrap(), named, "{client}");
    }
}

#[test]
fn the_exit_code_says_the_kind_of_failure() {
    let machine = Machine::new();
    let code = |arguments: &[&str]| machine.run(arguments).status.code().unwrap();
    let init = |client: &'static str| ["--dir", "mail", "--as", "ann", "init", client];
    machine.write(".codex/config.toml", "[mcp_servers.mailbox]\ncommand = \"other\"\n");
    assert_eq!(code(&init("codex")), 5, "somebody else's server of that name");
    machine.write(".gemini/settings.json", "{ not json");
    assert_eq!(code(&init("gemini")), 2, "a file that is damaged");
    assert_eq!(code(&init("no-such-client")), 2);
    let server = ["--server", "http://127.0.0.1:1", "--as", "ann", "init", "cursor"];
    assert_eq!(code(&server), 6, "a server that is not there");
    assert_eq!(code(&init("cursor")), 0);
}

#[test]
fn a_file_that_cannot_be_parsed_is_named_in_one_line() {
    for (client, file, text, words) in [
        ("claude-code", ".mcp.json", "{broken", "not JSON"),
        ("codex", ".codex/config.toml", "a = 1\nb = [", "not TOML; mend it first: line 2: "),
        ("nanobot", ".nanobot/config.json", "{broken", "not JSON"),
    ] {
        let machine = Machine::new();
        machine.write(file, text);
        for more in [&[][..], &["--as", "ann"], &["--undo"]] {
            let ended = machine.run(&[&["--dir", "mail", "init", client], more].concat());
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(2), "{said}");
            assert!(said.contains(file) && said.contains(words), "{client} {more:?}: {said}");
            assert!(said.lines().count() == 1 && !said.contains("U+000A"), "{client} {more:?}: {said}");
        }
    }
}

#[test]
fn a_program_under_another_name_knows_its_own_settings() {
    let machine = Machine::new();
    let program = machine.path("amb-next");
    fs_err::copy(env!("CARGO_BIN_EXE_amb"), &program).unwrap();
    for more in [&[][..], &[], &["--undo"]] {
        let mut amb = std::process::Command::new(&program);
        amb.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", machine.home.path()).current_dir(machine.home.path());
        let ended = amb.args(["--dir", "mail", "--as", "ann", "init", "codex"]).args(more).output().unwrap();
        assert!(ended.status.success(), "{more:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}
