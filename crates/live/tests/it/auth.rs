//! Who may connect, and how it is encrypted.

use std::time::Duration;

use amb_live::{LivePeers, NatsAuth, NatsBroker, NatsOptions, NatsTls};

use amb_testing::NatsServer;

use crate::world::fixture;
use crate::world::{fresh, join, name};

const NKEY_SEED: &str = "SUAKVAOFWAMFAPJEC6Q3YTWBVLTAS5BTVD4J7WO3LXLNC2VWNLOFAYMBI4";
const NKEY_PUBLIC: &str = "UCVFASNCGJRMYAAIVWCEHNIXW2AKDUSK6LZTLVJWGDAQRJJKG5FYUAM7";

/// With the right key a message goes round; without it the connection is refused.
async fn only_with(server: &NatsServer, options: NatsOptions) {
    let peers = LivePeers::connect(options.clone()).await.unwrap();
    let bob = join(&peers, "bob").await;
    let report = peers.send(name("alice"), "bob", "hi", None).await.unwrap();
    assert_eq!(report.delivered_to, [bob.id()]);
    let stranger = NatsOptions { auth: NatsAuth::None, ..options };
    let error = NatsBroker::connect(stranger).await.err().expect("a stranger is refused").to_string();
    assert!(error.contains(&server.url()), "{error}");
}

#[tokio::test]
async fn by_token() {
    let server = NatsServer::with_config("authorization { token: s3cret }");
    only_with(&server, NatsOptions { auth: NatsAuth::Token("s3cret".into()), ..server.options() }).await;
}

#[tokio::test]
async fn by_user_and_password() {
    let server = NatsServer::with_config("authorization { user: ann, password: s3cret }");
    let auth = NatsAuth::UserPassword { user: "ann".into(), password: "s3cret".into() };
    only_with(&server, NatsOptions { auth, ..server.options() }).await;
    let wrong = NatsAuth::UserPassword { user: "ann".into(), password: "guess".into() };
    assert!(NatsBroker::connect(NatsOptions { auth: wrong, ..server.options() }).await.is_err());
}

#[tokio::test]
async fn by_the_login_in_the_servers_address() {
    let connect = async |server: &NatsServer, login: &str| {
        let servers = server.url().replace("nats://", &format!("nats://{login}@")).parse().unwrap();
        NatsBroker::connect(NatsOptions { servers, ..server.options() }).await
    };
    let server = NatsServer::with_config(r#"authorization { user: ann, password: "s3/cret" }"#);
    assert!(connect(&server, "ann:s3%2Fcret").await.is_ok());
    assert!(connect(&server, "ann:guess").await.is_err());
    let server = NatsServer::with_config("authorization { token: s3cret }");
    assert!(connect(&server, "s3cret").await.is_ok());
    assert!(connect(&server, "guess").await.is_err());
}

#[tokio::test]
async fn by_nkey() {
    let server = NatsServer::with_config(&format!("authorization {{ users: [{{ nkey: {NKEY_PUBLIC} }}] }}"));
    only_with(&server, NatsOptions { auth: NatsAuth::NKey(NKEY_SEED.into()), ..server.options() }).await;
}

#[tokio::test]
async fn by_a_credentials_file() {
    let server = NatsServer::with_config(&fs_err::read_to_string(fixture("operator.conf")).unwrap());
    let options = NatsOptions { auth: NatsAuth::CredsFile(fixture("user.creds")), ..server.options() };
    only_with(&server, options).await;
    let missing = NatsOptions { auth: NatsAuth::CredsFile("no/such.creds".into()), ..server.options() };
    let error = NatsBroker::connect(missing).await.err().expect("no such file").to_string();
    assert!(error.contains("no/such.creds"), "{error}");
}

fn tls_server(verify: bool) -> NatsServer {
    let file = |name| fixture(name).display().to_string();
    NatsServer::with_config(&format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: {verify} }}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    ))
}

#[tokio::test]
async fn over_tls_that_trusts_the_named_authority_only() {
    let server = tls_server(false);
    let tls = NatsTls { required: true, ca_file: Some(fixture("ca.pem")), ..NatsTls::default() };
    let peers = LivePeers::connect(NatsOptions { tls, ..server.options() }).await.unwrap();
    let bob = join(&peers, "bob").await;
    assert_eq!(peers.send(name("alice"), "bob", "hi", None).await.unwrap().delivered_to, [bob.id()]);
    let untrusting = NatsTls { required: true, ..NatsTls::default() };
    assert!(NatsBroker::connect(NatsOptions { tls: untrusting, ..server.options() }).await.is_err());
}

#[tokio::test]
async fn over_tls_with_a_client_certificate() {
    let server = tls_server(true);
    let without = NatsTls { required: true, ca_file: Some(fixture("ca.pem")), ..NatsTls::default() };
    assert!(NatsBroker::connect(NatsOptions { tls: without.clone(), ..server.options() }).await.is_err());
    let with = NatsTls { client: Some((fixture("client.pem"), fixture("client.key"))), ..without };
    NatsBroker::connect(NatsOptions { tls: with, ..server.options() }).await.unwrap();
}

#[tokio::test]
async fn a_connection_without_required_tls_is_refused() {
    let server = NatsServer::start();
    let tls = NatsTls { required: true, ca_file: Some(fixture("ca.pem")), ..NatsTls::default() };
    assert!(NatsBroker::connect(NatsOptions { tls, ..server.options() }).await.is_err());
}

#[tokio::test]
async fn a_user_without_permission_gets_an_error_and_is_served_once_permitted() {
    let users = |deny: &str| {
        format!(
            "authorization {{ users: [{{ user: u, password: p, permissions: {{ subscribe: {{ deny: [{deny:?}] }} }} }}] }}"
        )
    };
    let mut server = NatsServer::with_config(&users("agent.inbox.>"));
    let auth = NatsAuth::UserPassword { user: "u".into(), password: "p".into() };
    let peers = LivePeers::connect(NatsOptions { auth, ..server.options() }).await.unwrap();
    let goal = fresh();
    let buffer = peers.router().register(goal);
    let error = peers.router().ready(goal, Duration::from_secs(2)).await.unwrap_err().to_string();
    assert!(error.contains("may this user subscribe"), "{error}");
    server.restart_with_config(&users("nothing.at.all"));
    peers.router().ready(goal, Duration::from_secs(30)).await.unwrap();
    let publication = crate::world::message("bob", "hi").into();
    peers.broker().publish(&amb_live::inbox_subject(goal), publication).await.unwrap();
    assert_eq!(buffer.len(), 1);
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let server = NatsServer::with_config(
        r#"authorization { users: [{ user: u, password: p, permissions: {
            publish: ["agent.inbox.>", "_INBOX.>", "$KV.amb_presence.>", "$JS.API.>"],
            subscribe: ["agent.inbox.>", "_INBOX.>", "$KV.amb_presence.>"],
        } }] }"#,
    );
    let auth = NatsAuth::UserPassword { user: "u".into(), password: "p".into() };
    let options = NatsOptions { auth, ..server.options() };
    let first = LivePeers::connect(options.clone()).await.unwrap();
    let bob = join(&first, "bob").await;
    let second = LivePeers::connect(options).await.unwrap();
    assert_eq!(second.send(name("alice"), "bob", "hi", None).await.unwrap().delivered_to, [bob.id()]);
}

#[test]
fn secrets_are_not_in_the_debug_form() {
    for auth in [
        NatsAuth::Token("s3cret".into()),
        NatsAuth::NKey("s3cret".into()),
        NatsAuth::UserPassword { user: "ann".into(), password: "s3cret".into() },
    ] {
        assert!(!format!("{auth:?}").contains("s3cret"));
    }
}
