//! Which conversation of the runtime a message goes to.

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{BridgeOptions, Conversations};

use crate::world::{World, quick};

#[tokio::test]
async fn all_mail_goes_to_one_conversation_or_each_peer_has_its_own() {
    let world = World::new().await;
    let (one, peer) = ("agent:main:main".to_owned(), "agent:main:mailbox:".to_owned());
    let both = [(Conversations::One(one), "agent:main:main"), (Conversations::Peer(peer), "agent:main:mailbox:alice")];
    for (conversations, expected) in both {
        let options = BridgeOptions { conversations, ..quick() };
        let bridge = world.start(GatewayRoute::Chat, options);
        world.settle().await;
        assert_eq!(world.gateway.lock().sessions.last().unwrap(), expected);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_session_stays_in_its_conversation_across_restarts() {
    use amb_core::mailbox::Mailbox;
    let world = World::new().await;
    let bridge = world.start(
        GatewayRoute::Chat,
        BridgeOptions { conversations: Conversations::One("agent:main:first".into()), ..quick() },
    );
    let mail = world.mail().await;
    world.is_answered(&mail).await;
    bridge.stop().await;

    let bridge = world.start(
        GatewayRoute::Chat,
        BridgeOptions { conversations: Conversations::One("agent:main:second".into()), ..quick() },
    );
    let next = amb_core::Draft {
        session: Some(mail.session.clone()),
        ..amb_core::Draft::text("bob".parse().unwrap(), "", "and another thing")
    };
    world.alice.send(next).await.unwrap();
    world.settle().await;
    assert_eq!(world.gateway.lock().sessions, ["agent:main:first", "agent:main:first", "agent:main:second"]);
    bridge.stop().await;
}
