//! The protocol: both eras, capabilities, errors, and the end of a connection.

use std::sync::Arc;

use amb_mcp::McpOptions;
use amb_testing::memory::MemoryOffice;
use serde_json::{Value, json};

use crate::client::{Client, ERAS, Era, PATIENCE, name, quiet};

/// The budget of `tools/list` in every agent's context.
const MOST_TOKENS: usize = 2_300;

/// Tokens of a JSON text, counted high: real tokenizers take 3.5 to 4 characters of such JSON for one.
fn tokens(json: &Value) -> usize {
    json.to_string().chars().count() * 2 / 7
}

#[tokio::test]
async fn both_eras_list_the_same_tools() {
    let office = MemoryOffice::new();
    let mut lists = Vec::new();
    for era in ERAS {
        let mut client = Client::open(&office, "alice", era).await;
        let result = client.result("tools/list", json!({})).await;
        lists.push(result["tools"].clone());
        client.close().await;
    }
    assert_eq!(lists[0], lists[2]);
    assert_eq!(lists[0], lists[1]);
    let names: Vec<_> = lists[0].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let wanted = [
        "mailbox_check",
        "mailbox_read",
        "mailbox_send",
        "mailbox_wait",
        "mailbox_task",
        "mailbox_connect",
        "mailbox_approve",
        "list_peers",
        "send_to_peer",
        "transcript_recent",
        "transcript_append",
    ];
    assert_eq!(names, wanted);
}

#[tokio::test]
async fn the_tools_cost_a_model_no_more_than_their_budget() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    let result = client.result("tools/list", json!({})).await;
    // What a client is told about a tool beside it, no model sees.
    let mut tools = result["tools"].clone();
    for tool in tools.as_array_mut().unwrap() {
        tool.as_object_mut().unwrap().remove("_meta");
    }
    let cost = tokens(&tools);
    println!("tools/list: about {cost} tokens, {} characters", result["tools"].to_string().len());
    assert!(cost <= MOST_TOKENS, "tools/list costs about {cost} tokens");
    client.close().await;
}

#[tokio::test]
async fn no_text_for_a_model_names_a_type_of_the_code() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    let result = client.result("tools/list", json!({})).await;
    for tool in result["tools"].as_array().unwrap() {
        let text = tool["description"].as_str().unwrap();
        let is_type = |word: &&str| word.chars().skip(1).any(char::is_uppercase) && word.contains(char::is_lowercase);
        assert_eq!(text.split_whitespace().find(is_type), None, "{text}");
    }
    client.close().await;
}

#[tokio::test]
async fn the_tools_that_a_woken_model_needs_are_there_without_a_search() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    let result = client.result("tools/list", json!({})).await;
    let tools = result["tools"].as_array().unwrap().iter();
    let marked =
        tools.filter(|tool| tool["_meta"]["anthropic/alwaysLoad"] == true).map(|tool| tool["name"].as_str().unwrap());
    assert_eq!(marked.collect::<Vec<_>>(), ["mailbox_check", "mailbox_read", "mailbox_send"]);
    client.close().await;
}

#[tokio::test]
async fn every_tool_says_what_it_takes_gives_and_does() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Stateless).await;
    let result = client.result("tools/list", json!({})).await;
    for tool in result["tools"].as_array().unwrap() {
        assert!(tool["description"].is_string(), "{tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(schema["type"], "object", "{tool}");
            let properties = schema["properties"].as_object().unwrap();
            assert!(properties.values().all(|property| property["type"].is_string()), "{tool}");
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{tool}");
            }
        }
        assert!(!tool.to_string().contains("\"format\""), "clients warn at formats they do not know: {tool}");
    }
    let read_only = |name: &str| {
        let tools = result["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["annotations"]["readOnlyHint"].clone()
    };
    assert_eq!(read_only("mailbox_check"), true);
    assert_eq!(read_only("mailbox_wait"), true);
    assert_eq!(read_only("mailbox_read"), false);
    assert_eq!(read_only("mailbox_send"), false);
    client.close().await;
}

#[tokio::test]
async fn the_server_presents_itself_under_its_own_name_and_declares_only_what_it_has() {
    let office = MemoryOffice::new();
    let mut client =
        Client::silent(Arc::new(office.mailbox(name("alice"))), Era::Handshake("2025-11-25"), McpOptions::default());
    let answer = client.initialize("2025-11-25").await;
    let result = &answer["result"];
    assert_eq!(result["serverInfo"]["name"], "agent-mailbox");
    assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    let capabilities = result["capabilities"].as_object().unwrap();
    assert_eq!(capabilities["resources"]["subscribe"], true);
    assert_eq!(capabilities["experimental"]["claude/channel"], json!({}));
    let declared: Vec<_> = capabilities.keys().map(String::as_str).collect();
    assert_eq!(declared, ["experimental", "resources", "tools"]);
    assert!(result["instructions"].as_str().unwrap().contains("alice"));
    client.close().await;
}

#[tokio::test]
async fn a_client_may_discover_and_then_go_on_either_way() {
    let office = MemoryOffice::new();
    let mut client = Client::silent(Arc::new(office.mailbox(name("alice"))), Era::Stateless, quiet());
    let found = client.result("server/discover", json!({})).await;
    let versions: Vec<_> = found["supportedVersions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        assert!(versions.contains(&version), "{found}");
    }
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "agent-mailbox");
    let (_, data) = client.call("mailbox_check", json!({})).await;
    assert_eq!(data["unread"], 0);
    client.close().await;

    let mut client = Client::silent(Arc::new(office.mailbox(name("alice"))), Era::Stateless, quiet());
    client.result("server/discover", json!({})).await;
    let answer = client.initialize("2025-11-25").await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
    client.close().await;
}

#[tokio::test]
async fn parameters_of_another_shape_are_invalid() {
    let office = MemoryOffice::new();
    for era in ERAS {
        let mut client = Client::open(&office, "alice", era).await;
        client.result("tools/list", json!({})).await;
        for (method, params) in [
            ("tools/call", json!({"arguments": {}})),
            ("tools/call", json!({"name": "mailbox_check", "arguments": "x"})),
            ("resources/read", json!({"uri": 1})),
        ] {
            let answer = client.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn what_is_not_declared_is_not_answered() {
    let office = MemoryOffice::new();
    for era in ERAS {
        let mut client = Client::open(&office, "alice", era).await;
        let requests = [
            ("prompts/get", json!({"name": "x"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
            ),
            ("nonsense/method", json!({})),
        ];
        // The first request of a stateless conversation opens it; begin with one that is answered.
        client.result("tools/list", json!({})).await;
        // Clients of the older protocols ask for prompts all the same, and warn their user of an error.
        let prompts = client.request("prompts/list", json!({})).await;
        match era {
            Era::Stateless => assert_eq!(prompts["error"]["code"], -32601, "{prompts}"),
            Era::Handshake(_) => assert_eq!(prompts["result"]["prompts"], json!([]), "{prompts}"),
        }
        for (method, params) in requests {
            let answer = client.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn an_unsupported_version_is_refused_with_the_supported_ones() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Stateless).await;
    client.result("tools/list", json!({})).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "1999-01-01", "io.modelcontextprotocol/clientCapabilities": {}});
    client
        .line(&json!({"jsonrpc": "2.0", "id": 99, "method": "tools/list", "params": {"_meta": meta}}).to_string())
        .await;
    let answer = client.answer(99).await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert!(answer["error"]["data"]["supported"].to_string().contains("2026-07-28"), "{answer}");
    client.close().await;
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    let answer = client.request("tools/call", json!({"name": "mailbox_burn", "arguments": {}})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    client.close().await;
}

#[tokio::test]
async fn a_line_that_is_no_message_does_not_end_the_conversation() {
    let office = MemoryOffice::new();
    let mut client = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    client.line("this is not json").await;
    client.line("").await;
    client.call("mailbox_check", json!({})).await;
    client.close().await;
}

#[tokio::test]
async fn the_server_ends_with_its_input_and_answers_what_it_was_asked() {
    let office = MemoryOffice::new();
    for era in ERAS {
        let mut client = Client::open(&office, "alice", era).await;
        client.result("tools/list", json!({})).await;
        let asked = client.send("tools/call", json!({"name": "mailbox_check", "arguments": {}})).await;
        let waits =
            client.send("tools/call", json!({"name": "mailbox_wait", "arguments": {"timeout_seconds": 55}})).await;
        let rest = tokio::time::timeout(PATIENCE, client.close()).await.expect("a wait does not keep the process");
        assert!(rest.iter().any(|answer| answer["id"] == asked), "{rest:?}");
        assert!(rest.iter().any(|answer| answer["id"] == waits), "{rest:?}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_without_a_request_is_no_failure() {
    let office = MemoryOffice::new();
    let client = Client::silent(Arc::new(office.mailbox(name("alice"))), Era::Stateless, quiet());
    client.close().await;
}
