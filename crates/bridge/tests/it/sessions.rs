//! Which conversation of the runtime a mail goes to.

use amb_bridge::Options;
use amb_bridge::openclaw::Route;

use crate::world::{World, quick};

#[tokio::test]
async fn all_mail_goes_to_the_main_session_unless_each_peer_has_its_own() {
    let world = World::new().await;
    for (per_peer, expected) in [(None, "agent:main:main"), (Some("agent:main:mailbox:"), "agent:main:mailbox:alice")] {
        let options = Options { session_per_peer: per_peer.map(str::to_owned), ..quick() };
        let bridge = world.start(Route::Chat, options);
        world.settle().await;
        assert_eq!(world.gateway.lock().sessions.last().unwrap(), expected);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_thread_stays_in_its_conversation_across_restarts() {
    use amb_core::office::Office;
    let world = World::new().await;
    let bridge = world.start(Route::Chat, Options { main_session: "agent:main:first".into(), ..quick() });
    let mail = world.mail().await;
    world.is_answered(&mail).await;
    bridge.stop().await;

    let bridge = world.start(Route::Chat, Options { main_session: "agent:main:second".into(), ..quick() });
    let next = amb_core::Draft {
        session: Some(mail.session.clone()),
        ..amb_core::Draft::text("bob".parse().unwrap(), "", "and another thing")
    };
    world.alice.send(next).await.unwrap();
    world.settle().await;
    assert_eq!(world.gateway.lock().sessions, ["agent:main:first", "agent:main:first", "agent:main:second"]);
    bridge.stop().await;
}
