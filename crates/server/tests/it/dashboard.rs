//! The dashboard through a browser's requests: signing in, access, and hostile mail.

use amb_core::{AgentName, Timestamp};
use amb_server::{Config, HouseholdToken};
use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use crate::test_server::{Agent, TestServer, soon};

/// A person, their agents, and their browser.
pub(crate) struct Home {
    pub(crate) person: Agent,
    token: String,
    cookie: String,
}

impl Home {
    /// A household with a person of this name, signed in.
    pub(crate) async fn of(server: &TestServer, name: &str) -> Self {
        let token = HouseholdToken::fresh().unwrap();
        server.store.found_household(token.hash(), false, Timestamp::now()).await.unwrap().unwrap();
        let token = token.reveal().to_owned();
        let request = server.http.post(server.url("/household/person")).header("X-Household-Token", &token);
        let answer = server.request(request.json(&json!({"name": name}))).await.expect(201);
        let person = agent_of(&answer);
        let cookie = sign_in(server, &link(server, &person).await).await.expect("a fresh link works");
        Self { person, token, cookie }
    }

    /// Another agent of the household.
    pub(crate) async fn agent(&self, server: &TestServer, name: &str) -> Agent {
        let body = json!({"name": name, "household_token": self.token});
        agent_of(&server.call(Method::POST, "/agents/register", None, Some(&body)).await.expect(201))
    }

    pub(crate) async fn get(&self, server: &TestServer, path: &str) -> Response {
        soon(server.http.get(server.url(path)).header("Cookie", &self.cookie).send()).await.unwrap()
    }

    /// The text of a page, which must exist.
    #[track_caller]
    pub(crate) fn page(&self, server: &TestServer, path: &str) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        let request = server.http.get(server.url(path)).header("Cookie", &self.cookie).send();
        let path = path.to_owned();
        async move {
            let answer = soon(request).await.unwrap();
            let status = answer.status();
            let text = answer.text().await.unwrap();
            assert_eq!(status, 200, "{path} at {place}: {text}");
            text
        }
    }

    /// Submits a form with a CSRF token.
    pub(crate) async fn post(&self, server: &TestServer, path: &str, fields: &[(&str, &str)]) -> Response {
        let token = csrf(&self.page(server, "/dashboard").await);
        let mut form: Vec<(&str, &str)> = fields.to_vec();
        form.push(("csrf", token.as_str()));
        self.form(server, path, &form).await
    }

    pub(crate) async fn form(&self, server: &TestServer, path: &str, form: &[(&str, &str)]) -> Response {
        let request = server.http.post(server.url(path)).header("Cookie", &self.cookie);
        let kind = "application/x-www-form-urlencoded";
        soon(request.header("Content-Type", kind).body(encoded(form)).send()).await.unwrap()
    }
}

fn agent_of(registered: &serde_json::Value) -> Agent {
    let text = |field: &str| registered[field].as_str().unwrap().to_owned();
    Agent { name: text("name"), key: text("api_key") }
}

fn encoded(form: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect::<String>()
    };
    form.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect::<Vec<_>>().join("&")
}

fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

async fn link(server: &TestServer, person: &Agent) -> String {
    let answer = server.call(Method::POST, "/dashboard/links", Some(&person.key), None).await.expect(201);
    answer["url"].as_str().unwrap().to_owned()
}

/// Opens a link. Returns the cookie, if it set one.
async fn sign_in(server: &TestServer, url: &str) -> Option<String> {
    let answer = soon(server.http.get(url).send()).await.unwrap();
    let cookie = answer.headers().get("set-cookie")?.to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/dashboard"));
    Some(cookie.split(';').next().unwrap().to_owned())
}

const PAGES: [&str; 9] = [
    "/dashboard",
    "/dashboard/conversations",
    "/dashboard/conversations?q=hello&agent=coder&unread=1",
    "/dashboard/tasks",
    "/dashboard/network",
    "/dashboard/agents",
    "/dashboard/groups",
    "/dashboard/connections",
    "/dashboard/write",
];

async fn a_link_works_once_and_the_session_ends_with_the_key(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let url = link(&server, &home.person).await;
    assert!(sign_in(&server, &url).await.is_some());
    let again = soon(server.http.get(&url).send()).await.unwrap();
    assert_eq!(again.status(), StatusCode::GONE, "used twice");
    assert!(again.headers().get("set-cookie").is_none());
    assert!(sign_in(&server, &server.url("/dashboard/sign-in?link=0000")).await.is_none());
    // A link preview does not use the link up.
    let url = link(&server, &home.person).await;
    assert_eq!(soon(server.http.head(&url).send()).await.unwrap().status(), 405);
    assert!(sign_in(&server, &url).await.is_some());
    // No agent signs in, and nobody without a key.
    let coder = home.agent(&server, "coder").await;
    server.call(Method::POST, "/dashboard/links", Some(&coder.key), None).await.problem(403, "forbidden");
    server.call(Method::POST, "/dashboard/links", None, None).await.problem(401, "unauthorized");
    assert_eq!(soon(server.http.get(server.url("/dashboard")).send()).await.unwrap().status(), 401);
    // The session ends with the key.
    home.page(&server, "/dashboard").await;
    server.post(&home.person, "/agents/me/rotate-key", json!({"grace_seconds": 0})).await.expect(200);
    assert_eq!(home.get(&server, "/dashboard").await.status(), 401);
}

async fn a_session_survives_a_restart_until_sign_out(mut server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let port: u16 = server.host.rsplit_once(':').unwrap().1.parse().unwrap();
    server.close().await;
    server.start_on(&format!("127.0.0.1:{port}"), Config { rate_limits: None, ..Config::default() }).await;
    home.page(&server, "/dashboard").await;
    let out = home.post(&server, "/dashboard/sign-out", &[]).await;
    assert_eq!(out.status(), 401, "it leads to a page that says so");
    assert_eq!(home.get(&server, "/dashboard").await.status(), 401, "the cookie alone is worth nothing now");
}

async fn every_page_is_served_with_security_headers(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    server.send(&coder, &tester, "Build", "hello, **can** you test it?").await;
    let task = json!({"to": "tester", "subject": "Test", "content": "all of it", "kind": "task", "deadline_in": 3600});
    let sent = server.post(&coder, "/messages/send", task).await.expect(201);
    server.post(&coder, "/groups", json!({"name": "review"})).await.expect(201);
    server
        .post(&coder, "/transcripts/standup", json!({"role": "user", "sender": "Ann", "content": "Good morning"}))
        .await;
    let session = sent["session_id"].as_str().unwrap();
    let task = sent["task"]["id"].as_str().unwrap();
    let more = [
        format!("/dashboard/conversations/{session}"),
        format!("/dashboard/tasks/{task}"),
        "/dashboard/agents/coder".to_owned(),
        "/dashboard/transcripts/coder/standup".to_owned(),
        "/dashboard/network?agent=coder".to_owned(),
    ];
    for path in PAGES.into_iter().chain(more.iter().map(String::as_str)) {
        let answer = home.get(&server, path).await;
        assert_eq!(answer.status(), 200, "{path}");
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!((header("cache-control"), header("referrer-policy")), ("no-store".into(), "same-origin".into()));
        let text = answer.text().await.unwrap();
        for inline in [" style=", " onclick=", "<style", "http://", "https://"] {
            assert!(!text.contains(inline), "{path} has {inline}");
        }
        assert_eq!(text.matches("<script").count(), 1, "{path}");
        assert!(text.len() < 50_000, "{path} has {} bytes", text.len());
    }
    let overview = home.page(&server, "/dashboard").await;
    assert!(overview.contains("coder → tester"), "{overview}");
    assert!(home.page(&server, &more[0]).await.contains("all of it"));
    assert!(home.page(&server, "/dashboard/tasks").await.contains("Test"));
    assert_eq!(home.get(&server, "/dashboard/health").await.status(), 403, "health is the operator's");
    assert_eq!(home.get(&server, "/dashboard/agents/nobody").await.status(), 404);
    assert_eq!(home.get(&server, &format!("/dashboard/agents?page={}", usize::MAX)).await.status(), 200);
    assert_eq!(home.get(&server, "/dashboard/conversations/nonsense").await.status(), 422);
    for (path, status) in [("/dashboard/nope", 404), ("/dashboard/tasks/", 404), ("/dashboard/agents/coder/key", 405)] {
        let answer = home.get(&server, path).await;
        assert_eq!(answer.status(), status, "{path}");
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
    }
}

async fn another_household_is_invisible(server: TestServer) {
    let (home, other) = (Home::of(&server, "pat").await, Home::of(&server, "kim").await);
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let spy = other.agent(&server, "spy-agent").await;
    server.send(&coder, &tester, "Secret plan", "the vault is blue").await;
    let task = json!({"to": "tester", "subject": "Secret task", "content": "dig", "kind": "task"});
    let sent = server.post(&coder, "/messages/send", task).await.expect(201);
    server.post(&coder, "/transcripts/secrets", json!({"role": "user", "sender": "x", "content": "vault"})).await;
    for path in PAGES {
        let text = other.page(&server, path).await;
        for word in ["vault", "Secret", "tester"] {
            assert!(!text.contains(word), "{path} shows {word}");
        }
    }
    let session = sent["session_id"].as_str().unwrap();
    let message = sent["message_id"].as_str().unwrap();
    let task = sent["task"]["id"].as_str().unwrap();
    for path in [
        format!("/dashboard/conversations/{session}"),
        format!("/dashboard/messages/{message}/text"),
        format!("/dashboard/tasks/{task}"),
        "/dashboard/agents/coder".to_owned(),
        "/dashboard/transcripts/coder/secrets".to_owned(),
    ] {
        assert_eq!(other.get(&server, &path).await.status(), 404, "{path}");
        assert_eq!(home.get(&server, &path).await.status(), 200, "{path}");
    }
    // The other person cannot act on their behalf.
    let form = [("agent", "coder"), ("peer", "tester")];
    assert_eq!(other.post(&server, "/dashboard/connections/block", &form).await.status(), 404);
    assert_eq!(other.post(&server, "/dashboard/agents/coder/key", &[]).await.status(), 404);
    let path = format!("/dashboard/conversations/{session}/send");
    let form = [("to", "coder"), ("content", "hello")];
    assert_eq!(other.post(&server, &path, &form).await.status(), 404);
    // Both see just the conversation between the two.
    server.connect(&spy, &coder).await;
    server.send(&spy, &coder, "Hello", "nice to meet you").await;
    assert!(home.page(&server, "/dashboard").await.contains("nice to meet you"));
    let text = other.page(&server, "/dashboard").await;
    assert!(text.contains("nice to meet you") && !text.contains("vault"));
}

async fn a_form_needs_the_token_of_its_own_browser(server: TestServer) {
    let (home, other) = (Home::of(&server, "pat").await, Home::of(&server, "kim").await);
    let coder = home.agent(&server, "coder").await;
    let write = [("to", "coder"), ("subject", "Hi"), ("content", "hello")];
    assert_eq!(home.form(&server, "/dashboard/write", &write).await.status(), 403, "without a token");
    let theirs = csrf(&other.page(&server, "/dashboard").await);
    let stolen = [&write[..], &[("csrf", theirs.as_str())]].concat();
    assert_eq!(home.form(&server, "/dashboard/write", &stolen).await.status(), 403, "with another's");
    assert_eq!(server.get(&coder, "/inbox").await.expect(200)["sessions"], json!([]));
    let sent = home.post(&server, "/dashboard/write", &write).await;
    assert!(sent.url().path().starts_with("/dashboard/conversations/"), "{}", sent.url());
    let inbox = server.get(&coder, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "hello");
    assert_eq!(inbox["sessions"][0]["other_agent_name"], "pat");
}

async fn a_form_sent_twice_sends_once_and_an_invalid_one_is_shown_again(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let once = "0199c0de-0000-7000-8000-000000000001";
    let write = [("to", "coder"), ("subject", "Hi"), ("content", "hello"), ("once", once)];
    for _ in 0..2 {
        assert_eq!(home.post(&server, "/dashboard/write", &write).await.status(), 200);
    }
    let inbox = server.get(&coder, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"].as_array().unwrap().len(), 1);
    let answer = home.post(&server, "/dashboard/write", &[("to", "nobody-here"), ("content", "keep <this>")]).await;
    let text = answer.text().await.unwrap();
    assert!(text.contains("keep &#60;this&#62;") || text.contains("keep &lt;this&gt;"), "{text}");
    // To everybody: each agent gets it, but not the person.
    let all = home.post(&server, "/dashboard/write", &[("to", "*"), ("subject", "All"), ("content", "stop")]).await;
    assert_eq!(all.status(), 200);
    for agent in [&coder, &tester] {
        let inbox = server.get(agent, "/inbox").await.expect(200);
        assert!(inbox["sessions"].to_string().contains("stop"), "{inbox}");
    }
}

async fn the_person_decides_about_connections(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, stranger) = (home.agent(&server, "coder").await, server.register("stranger").await);
    let ask = json!({"target_agent_name": "coder", "message": "let us talk"});
    let code = server.post(&stranger, "/connections/request", ask).await.expect(201);
    let code = code["verification_code"].as_str().unwrap();
    let page = home.page(&server, "/dashboard").await;
    assert!(page.contains("stranger wants to connect with coder") && page.contains("let us talk"));
    assert!(!page.contains(code), "the code comes from the other side");
    let wrong = [("agent", "coder"), ("code", "AA-000")];
    assert_eq!(home.post(&server, "/dashboard/connections/approve", &wrong).await.status(), 404);
    let right = [("agent", "coder"), ("code", code)];
    let done = home.post(&server, "/dashboard/connections/approve", &right).await;
    assert_eq!(done.url().query(), Some("done=approved"));
    server.send(&stranger, &coder, "Hi", "hello").await;
    let peer = [("agent", "coder"), ("peer", "stranger")];
    home.post(&server, "/dashboard/connections/revoke", &peer).await;
    let refused = json!({"to": "coder", "subject": "Hi", "content": "again"});
    server.post(&stranger, "/messages/send", refused).await.problem(403, "not_connected");
    home.post(&server, "/dashboard/connections/block", &peer).await;
    let ask = json!({"target_agent_name": "coder"});
    assert_eq!(server.post(&stranger, "/connections/request", ask).await.status, 403);
    assert!(home.page(&server, "/dashboard/connections").await.contains("Unblock"));
}

async fn the_code_of_a_request_is_shown_to_the_requesters_person_alone(mut server: TestServer) {
    let port: u16 = server.host.rsplit_once(':').unwrap().1.parse().unwrap();
    server.close().await;
    let config = Config { rate_limits: None, private_codes: true, ..Config::default() };
    server.start_on(&format!("127.0.0.1:{port}"), config).await;
    let (home, other) = (Home::of(&server, "pat").await, Home::of(&server, "kim").await);
    home.agent(&server, "coder").await;
    other.agent(&server, "scout").await;
    let ask = [("agent", "coder"), ("peer", "scout")];
    assert_eq!(home.post(&server, "/dashboard/connections/ask", &ask).await.status(), 200);
    let page = home.page(&server, "/dashboard/connections").await;
    let (_, rest) = page.split_once("<code class=\"command\">").expect("the code");
    let code = rest.split('<').next().unwrap();
    assert!(!other.page(&server, "/dashboard/connections").await.contains(code));
    let done = other.post(&server, "/dashboard/connections/approve", &[("agent", "scout"), ("code", code)]).await;
    assert_eq!(done.url().query(), Some("done=approved"));
    assert!(!home.page(&server, "/dashboard/connections").await.contains(code), "it is used up");
}

async fn hostile_mail_is_escaped(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let hostile = [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "\"><svg onload=alert(1)>",
        "</textarea><style>*{display:none}</style>",
        "\u{202e}evil\u{202c}",
        "' onmouseover='alert(1)",
    ];
    let mut sessions = Vec::new();
    for text in hostile {
        let subject: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        let mail = json!({"to": "tester", "subject": subject, "content": text, "kind": "x-label",
            "parts": [{"type": "text", "text": text}, {"type": "data", "data": {"x": text}}, {"type": "file", "path": text}]});
        let sent = server.post(&coder, "/messages/send", mail).await;
        let sent = sent.expect(201);
        sessions.push(format!("/dashboard/conversations/{}", sent["session_id"].as_str().unwrap()));
    }
    let task = json!({"to": "tester", "subject": hostile[0], "content": hostile[1], "kind": "task", "deadline_in": 60});
    let task = server.post(&coder, "/messages/send", task).await.expect(201);
    let id = task["task"]["id"].as_str().unwrap();
    let note = json!({"state": "rejected", "note": hostile[3]});
    server.post(&tester, &format!("/tasks/{id}/state"), note).await.expect(200);
    sessions.push(format!("/dashboard/tasks/{id}"));
    server
        .post(&coder, "/transcripts/room", json!({"role": "user", "sender": hostile[1], "content": hostile[0]}))
        .await;
    sessions.push("/dashboard/transcripts/coder/room".to_owned());
    let about = json!({"description": hostile[3], "capabilities": [hostile[0]]});
    server.call(Method::PATCH, "/agents/me", Some(&coder.key), Some(&about)).await.expect(200);
    sessions.push("/dashboard/agents/coder".to_owned());
    for path in PAGES.into_iter().chain(sessions.iter().map(String::as_str)) {
        let text = home.page(&server, path).await;
        for markup in ["<script>", "<img", "<svg onload", "<style", "<iframe", "href=\"javascript", "\u{202e}"] {
            assert!(!text.contains(markup), "{path} has {markup}");
        }
        assert!(!text.contains("' onmouseover='"), "{path}");
    }
}

async fn a_conversation_is_paged_and_marks_only_the_persons_mail_as_read(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let mut session = String::new();
    for number in 0..60 {
        let sent = server.send(&coder, &tester, "Long", &format!("number-{number}-")).await;
        session = sent["session_id"].as_str().unwrap().to_owned();
    }
    let path = format!("/dashboard/conversations/{session}");
    let newest = home.page(&server, &path).await;
    assert!(newest.contains("number-59-") && newest.contains("number-10-") && !newest.contains("number-9-"));
    let (_, rest) = newest.split_once("?before=").unwrap();
    let older = home.page(&server, &format!("{path}?before={}", rest.split('"').next().unwrap())).await;
    assert!(older.contains("number-9-") && older.contains("number-0-") && !older.contains("number-10-"));
    // Viewing marks nothing as read for the agents.
    assert_eq!(server.get(&tester, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 60);
    // Messages to the person are marked as read when shown.
    let mine = server.send(&coder, &home.person, "For you", "look").await;
    let session = mine["session_id"].as_str().unwrap();
    home.page(&server, &format!("/dashboard/conversations/{session}")).await;
    let id = mine["message_id"].as_str().unwrap();
    let message = server.get(&coder, &format!("/messages/{id}")).await.expect(200);
    assert_eq!(message["receipts"][0]["state"], "read");
}

async fn long_messages_are_truncated_and_can_be_downloaded(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let long = "long-line ".repeat(9_000);
    let mail = json!({"to": "tester", "subject": "Long", "parts": [{"type": "text", "text": long},
        {"type": "data", "data": {"answer": 42}}]});
    let sent = server.post(&coder, "/messages/send", mail).await.expect(201);
    let (session, id) = (sent["session_id"].as_str().unwrap(), sent["message_id"].as_str().unwrap());
    let page = home.page(&server, &format!("/dashboard/conversations/{session}")).await;
    assert!(page.len() < 50_000 && page.contains("characters more"), "{}", page.len());
    let whole = home.get(&server, &format!("/dashboard/messages/{id}/text")).await;
    assert!(whole.headers()["content-disposition"].to_str().unwrap().starts_with("attachment"));
    assert_eq!(whole.text().await.unwrap(), long);
    let data = home.get(&server, &format!("/dashboard/messages/{id}/data/1")).await.text().await.unwrap();
    assert!(data.contains("42"));
    drop(tester);
}

/// Reads a stream until it contains this text.
async fn read_until(stream: &mut Response, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = soon(stream.chunk()).await.unwrap().expect("the stream goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    text
}

async fn the_stream_sends_changes_and_resumes(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let stream = |since: Option<&str>| {
        let mut request = server.http.get(server.url("/dashboard/events")).header("Cookie", &home.cookie);
        if let Some(since) = since {
            request = request.header("Last-Event-ID", since);
        }
        request.send()
    };
    let mut first = soon(stream(None)).await.unwrap();
    let hello = read_until(&mut first, "event: hello").await;
    let cursor = hello.split_once("id: ").unwrap().1.split('\n').next().unwrap().to_owned();
    server.send(&coder, &tester, "Build", "between the two").await;
    let changed = read_until(&mut first, "event: changed\ndata: mail").await;
    assert!(!changed.contains("between the two"), "a hint says nothing of what was said");
    server.send(&coder, &home.person, "For you", "look at this").await;
    assert!(read_until(&mut first, "event: mail").await.contains("coder writes"));
    drop(first);
    // Mail that arrived meanwhile is sent after a reconnect with the last id.
    server.send(&coder, &home.person, "For you", "and this").await;
    let mut back = soon(stream(Some(&cursor))).await.unwrap();
    let told = read_until(&mut back, "and this").await;
    assert!(told.contains("look at this"), "{told}");
    // The stream ends with the key.
    server.post(&home.person, "/agents/me/rotate-key", json!({"grace_seconds": 0})).await.expect(200);
    read_until(&mut back, "event: bye").await;
}

async fn a_stream_ends_when_its_browser_signs_out(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let coder = home.agent(&server, "coder").await;
    let open = async |home: &Home| {
        let request = server.http.get(server.url("/dashboard/events")).header("Cookie", &home.cookie);
        let mut stream = soon(request.send()).await.unwrap();
        read_until(&mut stream, "event: hello").await;
        stream
    };
    let mut stream = open(&home).await;
    home.post(&server, "/dashboard/sign-out", &[]).await;
    server.send(&coder, &home.person, "For you", "after the sign-out").await;
    let told = read_until(&mut stream, "event: bye").await;
    assert!(!told.contains("after the sign-out"), "{told}");
    assert_eq!(soon(stream.chunk()).await.unwrap(), None, "it is over");
    // At once, also where nothing else happens.
    let home = Home::of(&server, "kim").await;
    let mut stream = open(&home).await;
    home.post(&server, "/dashboard/sign-out", &[]).await;
    read_until(&mut stream, "event: bye").await;
}

async fn the_operator_sees_the_health_and_no_household(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, operator) = (home.agent(&server, "coder").await, server.register("operator-1").await);
    server.send(&coder, &home.person, "Plan", "the vault is blue").await;
    let name = AgentName::parse_plain("operator-1").unwrap();
    server.store.set_operator(&name, true, Timestamp::now()).await.unwrap();
    let cookie = sign_in(&server, &link(&server, &operator).await).await.unwrap();
    let eye = Home { person: operator, token: String::new(), cookie };
    assert!(eye.page(&server, "/dashboard/health").await.contains("Sends"));
    for path in PAGES.into_iter().skip(1) {
        assert_eq!(eye.get(&server, path).await.status(), 403, "{path}");
    }
    server.store.set_operator(&name, false, Timestamp::now()).await.unwrap();
    assert_eq!(eye.get(&server, "/dashboard/health").await.status(), 401);
}

#[tokio::test]
async fn assets_are_immutable_and_named_by_their_hash() {
    let server = TestServer::sqlite().await;
    let home = Home::of(&server, "pat").await;
    let page = home.page(&server, "/dashboard").await;
    let mut files = page.split("\"/dashboard/assets/").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut bytes = page.len();
    for _ in 0..3 {
        let answer =
            soon(server.http.get(server.url(&format!("/dashboard/assets/{}", files.next().unwrap()))).send()).await;
        let answer = answer.unwrap();
        assert!(answer.headers()["cache-control"].to_str().unwrap().contains("immutable"));
        bytes += answer.bytes().await.unwrap().len();
    }
    assert!(bytes < 50_000, "an empty overview with all its files has {bytes} bytes");
    assert_eq!(soon(server.http.get(server.url("/dashboard/assets/other.css")).send()).await.unwrap().status(), 404);
}

crate::on_every_store!(
    a_link_works_once_and_the_session_ends_with_the_key,
    a_session_survives_a_restart_until_sign_out,
    every_page_is_served_with_security_headers,
    another_household_is_invisible,
    a_form_needs_the_token_of_its_own_browser,
    a_form_sent_twice_sends_once_and_an_invalid_one_is_shown_again,
    the_person_decides_about_connections,
    the_code_of_a_request_is_shown_to_the_requesters_person_alone,
    hostile_mail_is_escaped,
    a_conversation_is_paged_and_marks_only_the_persons_mail_as_read,
    long_messages_are_truncated_and_can_be_downloaded,
    the_stream_sends_changes_and_resumes,
    a_stream_ends_when_its_browser_signs_out,
    the_operator_sees_the_health_and_no_household,
);
