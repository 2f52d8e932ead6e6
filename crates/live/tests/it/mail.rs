//! Goals and mail: new mail is hinted to a live goal, and a durable message to an agent that does not run goes to its
//! mailbox.

use std::sync::Arc;

use amb_core::{Card, Draft, Mailbox};
use amb_live::{AllowedDelegates, LivePeers, PeerContext, Protocol, SendToPeer, send_to_peer};
use amb_testing::memory::MemoryOffice;

use crate::world::{join, name, on_both_brokers, soon};

async fn mailbox(office: &Arc<MemoryOffice>, agent: &str) -> Arc<dyn Mailbox> {
    let mailbox = office.mailbox(name(agent));
    mailbox.register(Card::default()).await.unwrap();
    Arc::new(mailbox)
}

fn durable(to: &str) -> SendToPeer {
    SendToPeer { to: to.into(), message: "read me later".into(), durable: true, ..SendToPeer::default() }
}

async fn alice(process: &LivePeers, office: &Arc<MemoryOffice>) -> PeerContext {
    PeerContext { mailbox: Some(mailbox(office, "alice").await), ..process.context(name("alice")) }
}

on_both_brokers! {
    async fn new_mail_is_hinted_to_the_goal_and_stays_unread(world: World) {
        let process = world.process().await;
        let office = MemoryOffice::new();
        let (alice, bobs) = (mailbox(&office, "alice").await, mailbox(&office, "bob").await);
        let bob = join(&process, "bob").await;
        alice.send(Draft::text(name("bob"), "Old", "before the goal started")).await.unwrap();
        let _bell = bob.hint_on_mail(Arc::clone(&bobs));
        let batch = soon("the first ring", bob.next()).await;
        assert_eq!(Protocol::parse(&batch[0].body), Some(Protocol::UnreadMail { unread: 1, extra: Default::default() }));
        batch.confirm();
        let sent = alice.send(Draft::text(name("bob"), "Plan", "let us begin")).await.unwrap();
        let batch = soon("the ring", bob.next()).await;
        assert_eq!(batch[0].from_agent_id, "alice", "the sender is who the office says it is");
        let expected = Protocol::NewMail {
            message_id: sent.message_id,
            session_id: sent.session_id,
            subject: "Plan".into(),
            preview: "let us begin".into(),
            extra: Default::default(),
        };
        assert_eq!(Protocol::parse(&batch[0].body), Some(expected));
        assert_eq!(bobs.inbox(true).await.unwrap().unread(), 2, "a ring is not a reading");
    }

    async fn a_durable_message_to_an_agent_that_does_not_run_rests_in_its_mailbox(world: World) {
        let process = world.process().await;
        let office = MemoryOffice::new();
        let (alice, bobs) = (alice(&process, &office).await, mailbox(&office, "bob").await);
        let id = "7a3b2f00-1c2d-4e5f-8a9b-0c1d2e3f4a5b";
        let send = SendToPeer { correlation_id: Some(id.into()), ..durable("bob") };
        let report = send_to_peer(&alice, &send).await.unwrap();
        assert!(report.delivered_to.is_empty() && report.unreachable_reasons.is_empty(), "{report:?}");
        assert_eq!(report.mailed_to[0].agent_id, name("bob"));
        let mail = &bobs.inbox(true).await.unwrap().sessions[0].recent_messages[0];
        assert_eq!((&mail.id, &*mail.content), (&report.mailed_to[0].message_id, "read me later"));
        assert_eq!(mail.correlation_id.as_ref().map(|id| id.as_str()), Some(id));
    }

    async fn a_durable_message_to_a_live_agent_is_not_mailed_too(world: World) {
        let process = world.process().await;
        let office = MemoryOffice::new();
        let (alice, bobs) = (alice(&process, &office).await, mailbox(&office, "bob").await);
        let bob = join(&process, "bob").await;
        let report = send_to_peer(&alice, &durable("bob")).await.unwrap();
        assert_eq!(report.delivered_to, [bob.id()]);
        assert!(report.mailed_to.is_empty());
        assert_eq!(bobs.inbox(true).await.unwrap().unread(), 0);
    }

    async fn a_durable_message_falls_back_when_every_goal_fails(world: World) {
        let process = world.process().await;
        let office = MemoryOffice::new();
        let (alice, bobs) = (alice(&process, &office).await, mailbox(&office, "bob").await);
        let bob = join(&process, "bob").await;
        process.router().forget(bob.id());
        soon("it is mailed", async {
            while send_to_peer(&alice, &durable("bob")).await.unwrap().mailed_to.is_empty() {}
        })
        .await;
        assert!(bobs.inbox(true).await.unwrap().unread() > 0);
    }

    async fn a_message_that_can_neither_be_delivered_nor_mailed_is_reported(world: World) {
        let process = world.process().await;
        let office = MemoryOffice::new();
        let context = alice(&process, &office).await;
        let report = send_to_peer(&context, &durable("ghost")).await.unwrap();
        let reason = &report.unreachable_reasons[0];
        assert!(reason.starts_with("unknown agent_id `ghost`, and mail to it failed: "), "{reason}");
        let without = PeerContext { mailbox: None, ..context.clone() };
        let report = send_to_peer(&without, &durable("bob")).await.unwrap();
        assert!(report.unreachable_reasons[0].contains("no mailbox"), "{report:?}");
        let foreign = PeerContext { mailbox: Some(mailbox(&office, "mallory").await), ..context.clone() };
        let report = send_to_peer(&foreign, &durable("bob")).await.unwrap();
        assert!(report.unreachable_reasons[0].contains("`mallory`'s"), "{report:?}");
        let bobs = mailbox(&office, "bob").await;
        let fenced = PeerContext { allowed_delegates: AllowedDelegates::new(["carol"]), ..context };
        let report = send_to_peer(&fenced, &durable("bob")).await.unwrap();
        assert!(report.unreachable_reasons[0].contains("allowed_delegates"), "{report:?}");
        assert_eq!(bobs.inbox(true).await.unwrap().unread(), 0, "mail is no way round the fence");
    }
}
