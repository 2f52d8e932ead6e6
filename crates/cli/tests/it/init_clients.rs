//! `amb init` for clients with more than one file: all of them written, none twice, and all given back.

use std::process::Output;

use serde_json::{Value, json};

use crate::machine::Machine;

fn init(machine: &Machine, arguments: &[&str]) -> Output {
    machine.run(&[&["--dir", "mail", "--as", "ann", "init"], arguments].concat())
}

/// Runs `amb init`, which must succeed; returns what it printed.
fn does(machine: &Machine, arguments: &[&str]) -> String {
    let ended = init(machine, arguments);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{arguments:?}: {said}");
    String::from_utf8(ended.stdout).unwrap() + &said
}

const SETTINGS: &str = "{\n  // mine\n  \"permissions\": { \"allow\": [\"Bash(ls)\"] }\n}\n";

#[test]
fn claude_code_is_allowed_its_mailbox_and_keeps_its_own_rules() {
    let machine = Machine::new();
    machine.write(".claude/settings.json", SETTINGS);
    does(&machine, &["claude-code", "--print"]);
    assert_eq!(machine.read(".claude/settings.json"), SETTINGS, "--print writes nothing");
    assert!(!machine.path(".mcp.json").exists());
    does(&machine, &["claude-code", "--hooks"]);
    let settings = machine.read(".claude/settings.json");
    assert!(settings.contains("// mine") && settings.contains("\"Bash(ls)\", \"mcp__mailbox\""), "{settings}");
    assert!(settings.contains("hook claude stop") && settings.contains("--as ann"), "{settings}");
    let again = does(&machine, &["claude-code", "--hooks"]);
    assert!(again.contains("nothing to change"), "{again}");
    assert_eq!(machine.read(".claude/settings.json"), settings);
    does(&machine, &["claude-code", "--undo"]);
    assert_eq!(machine.read(".claude/settings.json"), SETTINGS);
    assert!(!machine.path(".mcp.json").exists() && !machine.path(".claude/settings.json.amb-backup").exists());
}

#[test]
fn the_change_is_printed_as_a_patch_that_names_its_files() {
    let machine = Machine::new();
    machine.write(".claude/settings.json", SETTINGS);
    let patch = String::from_utf8(init(&machine, &["claude-code", "--print"]).stdout).unwrap();
    let name = |file: &str| machine.path(file).strip_prefix("/").unwrap().display().to_string();
    let (server, rules) = (name(".mcp.json"), name(".claude/settings.json"));
    assert!(patch.starts_with(&format!("--- /dev/null\n+++ b/{server}\n@@ -0,0 +1,")), "{patch}");
    assert!(patch.contains(&format!("\n--- a/{rules}\n+++ b/{rules}\n@@ -3,1 +3,1 @@\n-  \"permissions\"")), "{patch}");
}

#[test]
fn codex_gets_approval_its_home_and_instructions() {
    let machine = Machine::new();
    machine.write(".codex/AGENTS.md", "# Mine\n\nBe brief.\n");
    machine.write(".codex/config.toml", "model = \"x\" # mine\n");
    does(&machine, &["codex"]);
    let config = machine.read(".codex/config.toml");
    assert!(config.contains("default_tools_approval_mode = \"approve\"") && config.contains("# mine"), "{config}");
    let home = machine.path(".codex").display().to_string();
    assert!(config.contains(&format!("CODEX_HOME = \"{home}\"")), "{config}");
    let told = machine.read(".codex/AGENTS.md");
    assert!(told.starts_with("# Mine\n\nBe brief.\n") && told.contains("`mailbox_check`"), "{told}");
    assert!(!machine.path(".codex/hooks.json").exists());
    // The user's own choice stays.
    machine.write(".codex/config.toml", &config.replace("\"approve\"", "\"prompt\""));
    does(&machine, &["codex"]);
    assert!(machine.read(".codex/config.toml").contains("\"prompt\""));
    does(&machine, &["codex", "--undo"]);
    assert_eq!(machine.read(".codex/AGENTS.md"), "# Mine\n\nBe brief.\n");
    assert!(!machine.read(".codex/config.toml").contains("mailbox"));
}

#[test]
fn opencode_gets_a_plugin_and_somebody_elses_file_stops_it_before_anything_is_written() {
    let machine = Machine::new();
    machine.write(".opencode/plugins/amb.js", "theirs\n");
    let refused = init(&machine, &["opencode", "--scope", "project"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(!machine.path("opencode.json").exists());
    fs_err::remove_file(machine.path(".opencode/plugins/amb.js")).unwrap();
    does(&machine, &["opencode", "--scope", "project"]);
    let config: Value = serde_json::from_str(&machine.read("opencode.json")).unwrap();
    assert_eq!(config["mcp"]["mailbox"]["type"], "local");
    assert_eq!(config["mcp"]["mailbox"]["command"][1], json!("mcp"));
    let plugin = machine.read(".opencode/plugins/amb.js");
    assert!(plugin.contains(r#""--as","ann","watch","--bell"]"#), "{plugin}");
    does(&machine, &["opencode", "--scope", "project", "--undo"]);
    assert!(!machine.path("opencode.json").exists() && !machine.path(".opencode/plugins/amb.js").exists());
}

#[test]
fn only_the_server_is_written_with_server_only() {
    let machine = Machine::new();
    does(&machine, &["gemini", "--server-only"]);
    let settings = machine.read(".gemini/settings.json");
    assert!(settings.contains("mcpServers") && !settings.contains("hooks"), "{settings}");
    assert!(!machine.path(".gemini/GEMINI.md").exists());
    for (client, file, permission) in [
        ("gemini", ".gemini/settings.json", "trust"),
        ("qwen", ".qwen/settings.json", "trust"),
        ("codex", ".codex/config.toml", "approval_mode"),
    ] {
        does(&machine, &[client, "--server-only"]);
        assert!(!machine.read(file).contains(permission), "{client}: {}", machine.read(file));
    }
    let shown = does(&machine, &["gemini", "--json"]);
    let document: Value =
        serde_json::from_str(shown.lines().next().unwrap()).or_else(|_| serde_json::from_str(&shown)).unwrap();
    assert_eq!(document["files"][0]["changed"], true, "{document}");
    let settings = machine.read(".gemini/settings.json");
    assert!(settings.contains("hook gemini stop") && settings.contains("\"trust\": true"), "{settings}");
    does(&machine, &["gemini", "--server-only"]);
    assert_eq!(machine.read(".gemini/settings.json"), settings, "a permission that is there stays");
}

#[test]
fn another_server_of_the_same_name_is_not_replaced() {
    for entry in [
        json!({"type": "local", "command": ["npx", "their-mailbox"]}),
        json!({"type": "remote", "url": "https://mail.example.com/mcp"}),
        json!({"type": "local", "enabled": true}),
    ] {
        let machine = Machine::new();
        let theirs = json!({"mcp": {"mailbox": entry}}).to_string();
        machine.write("opencode.json", &theirs);
        for arguments in [&["opencode", "--scope", "project"][..], &["opencode", "--scope", "project", "--undo"]] {
            let refused = init(&machine, arguments);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains("--name"), "{entry}: {said}");
            assert_eq!(machine.read("opencode.json"), theirs);
        }
    }
}

#[test]
fn a_users_own_hooks_and_the_version_of_their_file_survive_the_undo() {
    let machine = Machine::new();
    let theirs = r#"{"version": 1, "hooks": {"stop": [{"command": "my-hook cursor stop"}]}}"#;
    machine.write(".cursor/hooks.json", theirs);
    does(&machine, &["cursor", "--scope", "user", "--no-hooks"]);
    does(&machine, &["cursor", "--scope", "user", "--undo"]);
    assert_eq!(machine.read(".cursor/hooks.json"), theirs, "a file that was never changed");
    does(&machine, &["cursor", "--scope", "user"]);
    assert!(machine.read(".cursor/hooks.json").contains("--as ann hook cursor stop"));
    does(&machine, &["cursor", "--scope", "user", "--undo"]);
    let left: Value = serde_json::from_str(&machine.read(".cursor/hooks.json")).unwrap();
    assert_eq!(left, serde_json::from_str::<Value>(theirs).unwrap());
}

#[test]
fn a_users_command_in_our_group_of_hooks_stays() {
    let machine = Machine::new();
    does(&machine, &["claude-code", "--hooks"]);
    let written: Value = serde_json::from_str(&machine.read(".claude/settings.json")).unwrap();
    let mut shared = written.clone();
    let group = shared["hooks"]["Stop"][0]["hooks"].as_array_mut().unwrap();
    group.push(json!({"type": "command", "command": "notify-send done"}));
    machine.write(".claude/settings.json", &shared.to_string());
    does(&machine, &["claude-code", "--hooks"]);
    does(&machine, &["claude-code", "--undo"]);
    assert!(machine.read(".claude/settings.json").contains("notify-send done"));
}

#[test]
fn two_processes_at_once_lose_no_server() {
    let machine = Machine::new();
    let names = ["m1", "m2", "m3", "m4"];
    std::thread::scope(|scope| {
        for name in names {
            let machine = &machine;
            scope.spawn(move || does(machine, &["cursor", "--scope", "user", "--server-only", "--name", name]));
        }
    });
    let written: Value = serde_json::from_str(&machine.read(".cursor/mcp.json")).unwrap();
    let servers = written["mcpServers"].as_object().unwrap();
    assert!(names.iter().all(|name| servers.contains_key(*name)), "{written}");
}
