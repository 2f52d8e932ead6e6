//! `GET /ws`.

use std::time::Duration;

use amb_server::Config;
use futures_util::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::test_server::{Socket, TestServer, soon};

async fn a_bad_key_is_closed_with_4001(server: TestServer) {
    let wrong = format!("amb_{}", "0".repeat(64));
    for key in ["", "x", wrong.as_str()] {
        let mut socket = server.socket(&format!("?api_key={key}")).await;
        assert_eq!(socket.closed().await.0, 4001);
    }
    let mut socket = server.socket("").await;
    socket.send_json(json!({"type": "auth", "api_key": wrong})).await;
    assert_eq!(socket.closed().await.0, 4001);
}

async fn a_key_is_accepted_in_a_header_and_in_a_first_message(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut request = format!("ws://{}/ws", server.host).into_client_request().unwrap();
    request.headers_mut().insert("X-API-Key", bob.key.parse().unwrap());
    let (socket, _) = soon(tokio_tungstenite::connect_async(request)).await.unwrap();
    let mut by_header = Socket(socket);
    by_header.send_json(json!({"type": "ping"})).await;
    assert_eq!(by_header.receive().await["type"], "pong");

    let mut by_message = server.socket("").await;
    by_message.send_json(json!({"type": "hello"})).await;
    assert_eq!(by_message.receive().await["type"], "error");
    by_message.send_json(json!({"type": "auth", "api_key": bob.key, "since": 0})).await;
    let greeting = by_message.receive().await;
    assert_eq!(greeting, json!({"type": "authenticated", "agent_name": "bob-agent", "cursor": 0}));
    assert_eq!(by_message.receive().await["type"], "connection_request", "since counts here too");

    server.send(&alice, &bob, "Plan", "hello").await;
    for socket in [&mut by_header, &mut by_message] {
        assert_eq!(socket.receive().await["content"], "hello");
    }
}

#[tokio::test]
async fn a_socket_without_a_key_is_closed_with_4000() {
    let config = Config { ws_auth_timeout: Duration::from_millis(50), ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    assert_eq!(server.socket("").await.closed().await.0, 4000);
}

async fn every_kind_of_event_is_pushed(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let (mut to_alice, mut to_bob) = (server.live(&alice).await, server.live(&bob).await);
    let code = server.ask(&alice, &bob).await;
    let mut asked = to_bob.receive().await;
    let id = asked["connection_id"].clone();
    asked.as_object_mut().unwrap().remove("cursor");
    assert_eq!(
        asked,
        json!({
            "type": "connection_request", "connection_id": id, "from_agent": "alice-agent", "message": "hello",
            "verification_code": code,
        })
    );
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
    let mut approved = to_alice.receive().await;
    approved.as_object_mut().unwrap().remove("cursor");
    let expected = json!({"type": "connection_approved", "connection_id": id, "connected_agent": "bob-agent"});
    assert_eq!(approved, expected);
}

async fn all_sockets_of_an_agent_get_an_event(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut sockets = vec![server.live(&bob).await, server.live(&bob).await, server.live(&bob).await];
    server.send(&alice, &bob, "Plan", "one").await;
    for socket in &mut sockets {
        assert_eq!(socket.receive().await["content"], "one");
    }
    // Closing one does not affect the others.
    let mut gone = sockets.remove(0);
    soon(gone.0.close(None)).await.unwrap();
    while let Some(Ok(_)) = soon(gone.0.next()).await {}
    server.send(&alice, &bob, "Plan", "two").await;
    for socket in &mut sockets {
        assert_eq!(socket.receive().await["content"], "two");
    }
}

async fn without_since_a_socket_gets_only_new_events(server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.send(&alice, &bob, "Plan", "before").await;
    let mut socket = server.live(&bob).await;
    server.send(&alice, &bob, "Plan", "after").await;
    assert_eq!(socket.receive().await["content"], "after");
}

async fn a_message_sent_after_the_handshake_is_pushed(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for _ in 0..20 {
        let mut socket = server.socket(&format!("?api_key={}", bob.key)).await;
        let sent = server.send(&alice, &bob, "Plan", "hello").await;
        assert_eq!(socket.receive().await["message_id"], sent["message_id"]);
    }
}

async fn a_broken_socket_resumes_without_missing_or_repeating_events(server: TestServer) {
    const MESSAGES: usize = 300;
    let (alice, bob) = server.pair().await;
    let start = server.get(&bob, "/events").await.expect(200)["cursor"].as_u64().unwrap();
    let sending = async {
        let send = |number: usize| server.send(&alice, &bob, "Plan", Box::leak(number.to_string().into_boxed_str()));
        let mut sends = futures_util::stream::iter((0..MESSAGES).map(send)).buffer_unordered(16);
        while sends.next().await.is_some() {}
    };
    let hearing = async {
        let (mut since, mut heard) = (start, Vec::new());
        while heard.len() < MESSAGES {
            let mut socket = server.since(&bob, since).await;
            // Each socket receives a few and is dropped without a close frame.
            for _ in 0..37.min(MESSAGES - heard.len()) {
                let event = socket.receive().await;
                assert_eq!(event["cursor"].as_u64().unwrap(), since + 1, "no gap and no repeat");
                since += 1;
                heard.push(event["content"].as_str().unwrap().parse::<usize>().unwrap());
            }
        }
        heard
    };
    let ((), mut heard) = tokio::join!(sending, hearing);
    heard.sort_unstable();
    assert_eq!(heard, (0..MESSAGES).collect::<Vec<_>>());
}

async fn client_messages_are_answered_and_never_fatal(server: TestServer) {
    let bob = server.register("bob-agent").await;
    let mut socket = server.live(&bob).await;
    for odd in ["", "ping", "[]", "{}", r#"{"type":"send"}"#, r#"{"type":"auth","api_key":"x"}"#] {
        soon(socket.0.send(Message::text(odd))).await.unwrap();
        assert_eq!(socket.receive().await["type"], "error", "{odd}");
    }
    soon(socket.0.send(Message::binary(vec![0, 255]))).await.unwrap();
    assert_eq!(socket.receive().await["type"], "error");
    soon(socket.0.send(Message::Ping(vec![1, 2].into()))).await.unwrap();
    assert!(matches!(soon(socket.0.next()).await.unwrap().unwrap(), Message::Pong(data) if *data == [1, 2]));
    soon(socket.0.send(Message::text("x".repeat(20 * 1024)))).await.unwrap();
    assert_eq!(socket.closed().await.0, 1009);
}

async fn a_protocol_violation_is_closed_with_the_right_code(server: TestServer) {
    let bob = server.register("bob-agent").await;
    let wrong = [
        (Data::Text, vec![0xff, 0xfe], 1007),
        (Data::Reserved(3), vec![], 1002),
        (Data::Continue, b"x".to_vec(), 1002),
        (Data::Text, vec![b'x'; 16 * 1024 + 1], 1009),
    ];
    for (kind, payload, code) in wrong {
        let mut socket = server.live(&bob).await;
        let frame = Frame::message(payload, OpCode::Data(kind), true);
        soon(socket.0.send(Message::Frame(frame))).await.unwrap();
        assert_eq!(socket.closed().await.0, code, "{kind:?}");
    }
}

async fn a_close_frame_in_the_middle_of_a_backlog_is_answered(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for number in 0..100 {
        server.send(&alice, &bob, "Plan", &number.to_string()).await;
    }
    for _ in 0..20 {
        let mut socket = server.since(&bob, 0).await;
        soon(socket.0.close(None)).await.unwrap();
        let goodbye = soon(async {
            loop {
                match socket.0.next().await {
                    Some(Ok(Message::Close(_))) => return true,
                    Some(Ok(_)) => continue,
                    _ => return false,
                }
            }
        })
        .await;
        assert!(goodbye, "the connection ended without a word");
    }
}

#[tokio::test]
async fn a_silent_socket_is_pinged_and_then_closed() {
    let config = Config {
        ws_ping_interval: Duration::from_millis(20),
        ws_ping_timeout: Duration::from_secs(1),
        ..Config::default()
    };
    let server = TestServer::sqlite_with(config).await;
    let bob = server.register("bob-agent").await;
    let mut alive = server.live(&bob).await;
    // Reading answers the pings; many intervals later the socket is still there.
    for _ in 0..20 {
        assert!(matches!(soon(alive.0.next()).await.unwrap().unwrap(), Message::Ping(_)));
    }
    alive.send_json(json!({"type": "ping"})).await;
    assert_eq!(alive.receive().await["type"], "pong");

    // Not read, so pings are not answered, and it is closed.
    let mut silent = server.live(&bob).await;
    tokio::select! {
        () = server.wait_for_metric("amb_ws_sockets 1") => {}
        () = async { while let Some(Ok(_)) = alive.0.next().await {} } => panic!("the one that answers is closed"),
    }
    // Only its end is left to receive; the reason only if the pings before it could be answered.
    if let (_, Some(close)) = silent.receive_until_close().await {
        assert_eq!(u16::from(close.code), 1011);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_closed_does_not_slow_others_and_resumes() {
    let config = Config { ws_slow_timeout: Duration::from_millis(300), rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let (alice, bob) = server.pair().await;
    let start = server.get(&bob, "/events").await.expect(200)["cursor"].as_u64().unwrap();
    let mut slow = server.live(&bob).await;
    let mut quick = server.live(&bob).await;
    // More than socket buffers hold.
    let text = "😀".repeat(10_000);
    const MESSAGES: u64 = 400;
    for number in 1..=MESSAGES {
        server.send(&alice, &bob, "Plan", &text).await;
        assert_eq!(quick.receive().await["cursor"], start + number);
    }
    let request = server.http.get(format!("http://{}/metrics", server.metrics));
    soon(async {
        while !server
            .request(request.try_clone().unwrap())
            .await
            .expect(200)
            .as_str()
            .unwrap()
            .contains("amb_ws_cut_off_total 1")
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (heard, _) = slow.receive_until_close().await;
    let last = heard.last().map_or(start, |event: &Value| event["cursor"].as_u64().unwrap());
    assert!(last < start + MESSAGES, "it was not cut off");
    let mut resumed = server.since(&bob, last).await;
    for number in last + 1..=start + MESSAGES {
        assert_eq!(resumed.receive().await["cursor"], number);
    }
}

/// The library answers pings by itself, and would queue the pongs for a client that does not read.
#[tokio::test]
async fn a_client_that_pings_and_does_not_read_is_cut_off() {
    const MOST: usize = 64 * 1024 * 1024;
    let config = Config { ws_slow_timeout: Duration::from_millis(50), rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let alice = server.register("alice-agent").await;
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    let head = format!(
        "GET /ws?api_key={} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        alice.key
    );
    soon(line.write_all(head.as_bytes())).await.unwrap();
    let mut ping = vec![0x89, 0x80 | 125, 0, 0, 0, 0];
    ping.extend([b'x'; 125]);
    let pings = ping.repeat(500);
    let mut written = 0;
    while soon(line.write_all(&pings)).await.is_ok() {
        written += pings.len();
        assert!(written < MOST, "the office reads pings whose answers nobody takes");
    }
}

async fn a_plain_request_is_told_to_upgrade(server: TestServer) {
    let answer = server.call(Method::GET, "/ws", None, None).await;
    assert_eq!(answer.headers["upgrade"], "websocket");
    answer.problem(426, "upgrade_required");
    server.call(Method::GET, "/ws?since=x", None, None).await.problem(422, "invalid");
}

crate::on_every_store!(
    a_bad_key_is_closed_with_4001,
    a_key_is_accepted_in_a_header_and_in_a_first_message,
    every_kind_of_event_is_pushed,
    all_sockets_of_an_agent_get_an_event,
    without_since_a_socket_gets_only_new_events,
    a_message_sent_after_the_handshake_is_pushed,
    a_broken_socket_resumes_without_missing_or_repeating_events,
    client_messages_are_answered_and_never_fatal,
    a_protocol_violation_is_closed_with_the_right_code,
    a_close_frame_in_the_middle_of_a_backlog_is_answered,
    a_plain_request_is_told_to_upgrade,
);
