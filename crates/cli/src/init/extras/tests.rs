//! The files of each client, compared with snapshots.

use std::path::Path;

use clap::ValueEnum;

use super::*;
use crate::init::value::to_json;
use crate::init::{apply, revert, test_places as places};

fn account() -> ClientAccount {
    ClientAccount {
        me: "ann".parse().unwrap(),
        command: "/opt/my tools/amb".into(),
        directory: Some("/srv/mail".into()),
        layout: None,
        server: None,
        is_local: false,
        environment: Vec::new(),
        has_plugin: false,
    }
}

/// All files of a client, as created from nothing.
fn files(client: InitClient, scope: Scope, hooks: Hooks) -> Vec<(Extra, String)> {
    let Ok((path, format)) = client.config_file(scope, &places()) else { return Vec::new() };
    let variables = match (client, scope) {
        (InitClient::Codex, Scope::User) => vec![("CODEX_HOME", "/home/ann/.codex".into())],
        _ => Vec::new(),
    };
    let served = ClientAccount { environment: variables, ..account() };
    let mut settings = client.settings(&served, "mailbox", false).unwrap();
    settings.extend(client.more_settings(&account(), "mailbox", hooks));
    let main = Extra { path, format, settings };
    let all = std::iter::once(main).chain(client.extras(&account(), "mailbox", scope, &places(), hooks));
    all.map(|part| {
        let text = apply(part.format, "", &part.settings).unwrap();
        (part, text)
    })
    .collect()
}

#[test]
fn the_files_of_each_client_match_their_snapshot() {
    for client in InitClient::value_variants().iter().copied() {
        let mut golden = String::new();
        for scope in [Scope::User, Scope::Project] {
            for (part, text) in files(client, scope, Hooks::Always) {
                let shown = text.replace(SKILL.trim_end(), "(the skill)");
                golden.push_str(&format!("=== {}\n{shown}\n", part.path.display()));
            }
        }
        insta::assert_snapshot!(client.name(), golden);
    }
}

/// With our plugin Claude Code has the server already, under another name.
#[test]
fn the_tools_of_the_plugin_are_allowed_and_nothing_else_is_written() {
    let account = ClientAccount { has_plugin: true, ..account() };
    assert!(InitClient::ClaudeCode.settings(&account, "mailbox", false).unwrap().is_empty());
    let extras = InitClient::ClaudeCode.extras(&account, "mailbox", Scope::User, &places(), Hooks::Always);
    let [settings] = extras.as_slice() else { panic!("{extras:?}") };
    let text = apply(settings.format, "", &settings.settings).unwrap();
    let wanted = serde_json::json!({"permissions": {"allow": ["mcp__plugin_agent-mailbox_mailbox"]}});
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), wanted);
    // The name consists of the plugin's and its server's.
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/claude-code"));
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs_err::read_to_string(root.join(name)).unwrap()).unwrap()
    };
    let plugin = read(".claude-plugin/plugin.json")["name"].as_str().unwrap().to_owned();
    let server = read(".mcp.json")["mcpServers"].as_object().unwrap().keys().next().unwrap().clone();
    assert!(text.contains(&format!("\"mcp__plugin_{plugin}_{server}\"")));
}

#[test]
fn applying_twice_changes_nothing_and_undoing_removes_everything() {
    for client in InitClient::value_variants().iter().copied() {
        for scope in [Scope::User, Scope::Project] {
            for (part, text) in files(client, scope, Hooks::Always) {
                assert_eq!(apply(part.format, &text, &part.settings).unwrap(), text, "{client:?}");
                let back = revert(part.format, &text, None, &part.settings).unwrap();
                assert!(!back.contains("hook ") && !back.contains("mailbox_check"), "{client:?}: {back}");
            }
        }
    }
}

#[test]
fn hooks_are_written_by_default_for_clients_without_another_way_to_notify() {
    let is_hooked = |client: InitClient, hooks: Hooks| {
        let scope = if client == InitClient::Copilot { Scope::Project } else { Scope::User };
        let extras = client.extras(&account(), "mailbox", scope, &places(), hooks);
        let more = client.more_settings(&account(), "mailbox", hooks);
        let mut all = extras.iter().flat_map(|extra| &extra.settings).chain(&more);
        all.any(|setting| setting.path.first().is_some_and(|key| key == "hooks"))
    };
    for (client, by_default) in [
        (InitClient::ClaudeCode, false),
        (InitClient::Codex, false),
        (InitClient::Gemini, true),
        (InitClient::Cursor, true),
        (InitClient::Copilot, true),
    ] {
        assert_eq!(is_hooked(client, Hooks::Default), by_default, "{client:?}");
        assert!(is_hooked(client, Hooks::Always) && !is_hooked(client, Hooks::Never), "{client:?}");
    }
}

#[test]
fn the_skill_is_one_text_in_every_place() {
    let plugin = include_str!("../../../../../plugins/claude-code/skills/agent-mailbox/SKILL.md");
    let (front, text) = plugin.strip_prefix("---\n").unwrap().split_once("\n---\n\n").unwrap();
    assert_eq!(text, SKILL);
    assert!(front.starts_with("name: agent-mailbox\ndescription: "), "{front}");
    for client in [InitClient::Codex, InitClient::Gemini] {
        let extras = client.extras(&account(), "mailbox", Scope::Project, &places(), Hooks::Never);
        let [instructions] = extras.as_slice() else { panic!("{extras:?}") };
        assert!(apply(instructions.format, "", &instructions.settings).unwrap().contains(SKILL.trim_end()));
    }
}

/// Claude Code's plugin in this repository, in the form of a marketplace.
#[test]
fn the_parts_of_the_plugin_agree() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |name: &str| -> serde_json::Value {
        let text = fs_err::read_to_string(root.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let market = read(".claude-plugin/marketplace.json");
    let listed = &market["plugins"][0];
    let source = listed["source"].as_str().unwrap().strip_prefix("./").unwrap();
    let plugin = read(&format!("{source}/.claude-plugin/plugin.json"));
    assert_eq!((&plugin["name"], &plugin["description"]), (&listed["name"], &listed["description"]));
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    let server = &read(&format!("{source}/.mcp.json"))["mcpServers"]["mailbox"];
    assert_eq!(server, &serde_json::json!({"command": "amb", "args": ["mcp"]}));
    // The same hooks that `amb init claude-code --hooks` writes, for the agent of the profile.
    let hooks = &read(&format!("{source}/hooks/hooks.json"))["hooks"];
    let account = ClientAccount { command: "amb".into(), directory: None, ..account() };
    let ours = InitClient::ClaudeCode.hooks(&account);
    assert_eq!(hooks.as_object().unwrap().len(), ours.len());
    for hook in ours {
        let wanted = to_json(&hook.value).to_string().replace("amb --as ann hook", "amb hook");
        assert_eq!(hooks[&hook.path[1]][0].to_string(), wanted);
    }
    let monitors = read(&format!("{source}/monitors/monitors.json"));
    assert!(monitors[0]["command"].as_str().unwrap().ends_with("amb watch --bell"), "{monitors}");
    assert!(monitors[0]["name"].is_string() && monitors[0]["description"].is_string());
}
