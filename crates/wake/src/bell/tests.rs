//! The rules, one test each, with a simulated clock.

use super::*;

struct World {
    bell: Bell,
    now: Timestamp,
    waiting: Vec<WaitingMessage>,
    wait_open: bool,
    called_at: Option<Timestamp>,
    user_turn_at: Option<Timestamp>,
    client: ClientState,
    holds_lease: bool,
}

fn mail(id: &str) -> WaitingMessage {
    WaitingMessage { id: id.parse().unwrap(), from: "ann".parse().unwrap(), from_person: false, urgent: false }
}

impl World {
    fn new(ids: &[&str]) -> Self {
        Self {
            bell: Bell::new(Limits::default(), RingLedger::default()),
            now: "2026-11-17T10:00:00Z".parse().unwrap(),
            waiting: ids.iter().map(|id| mail(id)).collect(),
            wait_open: false,
            called_at: None,
            user_turn_at: None,
            client: ClientState::Unknown,
            holds_lease: true,
        }
    }

    fn decide(&mut self) -> RingDecision {
        self.bell.decide(&RingFacts {
            now: self.now,
            waiting: &self.waiting,
            wait_open: self.wait_open,
            called_at: self.called_at,
            user_turn_at: self.user_turn_at,
            client: self.client,
            holds_lease: self.holds_lease,
        })
    }

    fn passes(&mut self, millis: i64) -> &mut Self {
        self.now += SignedDuration::from_millis(millis);
        self
    }

    /// The client calls a tool.
    fn calls(&mut self) {
        self.called_at = Some(self.now);
    }

    fn rings(&mut self) {
        let waiting = self.waiting.clone();
        self.bell.ringing(self.now, &waiting);
    }

    /// Advances until the next ring, or until there is nothing to wait for; returns the milliseconds.
    fn until_ring(&mut self) -> Option<i64> {
        let began = self.now;
        loop {
            match self.decide() {
                RingDecision::Ring => {
                    self.rings();
                    return i64::try_from(self.now.duration_since(began).as_millis()).ok();
                }
                RingDecision::Later(at) => self.now = at,
                RingDecision::Quiet(_) => return None,
                RingDecision::GiveUp => {
                    let now = self.now;
                    self.bell.given_up(now);
                    return None;
                }
            }
        }
    }
}

#[test]
fn mail_that_arrives_together_is_one_ring() {
    let mut world = World::new(&["a"]);
    assert_eq!(world.decide(), RingDecision::Later(world.now + SignedDuration::from_millis(300)));
    world.passes(200).waiting.push(mail("b"));
    assert_eq!(world.decide(), RingDecision::Later(world.now + SignedDuration::from_millis(300)), "more came");
    assert_eq!(world.until_ring(), Some(300));
    assert_eq!(world.bell.ledger().rung_for.len(), 2);
}

#[test]
fn a_stream_of_mail_does_not_put_the_ring_off_for_ever() {
    let mut world = World::new(&["0"]);
    for n in 1..10 {
        assert_ne!(world.decide(), RingDecision::Ring, "{n}");
        world.passes(101).waiting.push(mail(&n.to_string()));
    }
    world.decide();
    world.passes(100);
    assert_eq!(world.decide(), RingDecision::Ring, "a second after the first");
}

#[test]
fn mail_read_within_the_pause_is_not_rung_for() {
    let mut world = World::new(&["a"]);
    assert!(matches!(world.decide(), RingDecision::Later(_)));
    world.passes(300).waiting.clear();
    assert_eq!(world.decide(), RingDecision::Quiet(Quiet::Nothing));
}

#[test]
fn unread_mail_is_rung_for_again_after_one_five_and_thirty_minutes_and_then_given_up() {
    let mut world = World::new(&["a"]);
    let minutes = |n: i64| Some(n * 60_000);
    let rings: Vec<_> = (0..4).map(|_| world.until_ring()).collect();
    assert_eq!(rings, [Some(300), minutes(1), minutes(5), minutes(30)]);
    assert_eq!(world.decide(), RingDecision::GiveUp);
    assert_eq!(world.until_ring(), None);
    assert_eq!(world.decide(), RingDecision::Quiet(Quiet::GivenUp), "said once");
    world.passes(60_000).waiting.push(mail("b"));
    assert_eq!(world.until_ring(), Some(300), "new mail begins anew");
    assert_eq!(world.bell.ledger().tries, 1);
}

#[test]
fn a_busy_client_is_not_reminded_until_it_is_idle() {
    let mut world = World::new(&["a"]);
    world.until_ring();
    world.client = ClientState::Busy;
    world.passes(60_000);
    assert_eq!(world.decide(), RingDecision::Later(world.now + BUSY_RETRY));
    world.client = ClientState::Idle;
    assert_eq!(world.decide(), RingDecision::Ring);
}

#[test]
fn mail_that_arrives_after_a_ring_waits_for_the_turn_that_the_ring_starts() {
    let mut world = World::new(&["a"]);
    world.until_ring();
    world.passes(12_000).waiting.push(mail("b"));
    let decided = world.decide();
    assert_eq!(decided, RingDecision::Later(world.bell.ledger().rung_at.unwrap() + SignedDuration::from_secs(60)));
    world.waiting[1].urgent = true;
    assert_eq!(world.until_ring(), Some(300), "urgent mail does not wait");
    world.waiting.push(mail("c"));
    world.passes(11_000).calls();
    assert_eq!(world.until_ring(), Some(300), "the client has looked since");
}

#[test]
fn rings_are_ten_seconds_apart_unless_the_user_had_a_turn() {
    let mut world = World::new(&["a"]);
    world.until_ring();
    world.passes(1_000).calls();
    world.waiting = vec![mail("b")];
    assert_eq!(world.until_ring(), Some(9_000));
    world.passes(1_000).calls();
    world.user_turn_at = Some(world.now);
    world.waiting = vec![mail("c")];
    assert_eq!(world.until_ring(), Some(300));
}

#[test]
fn no_more_than_thirty_an_hour() {
    let mut world = World::new(&[]);
    let began = world.now;
    let mut rings = 0;
    while world.now < began + SignedDuration::from_mins(59) {
        world.passes(1_000).calls();
        world.waiting = vec![mail(&format!("m{rings}"))];
        world.until_ring();
        rings += i32::from(world.now < began + SignedDuration::from_mins(60));
    }
    assert_eq!(rings, 30);
}

#[test]
fn nothing_rings_while_a_wait_is_open_or_another_session_is_rung() {
    let mut world = World::new(&["a"]);
    world.decide();
    world.passes(5_000).wait_open = true;
    assert_eq!(world.decide(), RingDecision::Quiet(Quiet::WaitIsOpen));
    (world.wait_open, world.holds_lease) = (false, false);
    assert_eq!(world.decide(), RingDecision::Later(world.now + LEASE_CHECK));
    world.holds_lease = true;
    assert_eq!(world.decide(), RingDecision::Ring);
}

#[test]
fn rings_are_remembered_across_a_restart() {
    let mut world = World::new(&["a"]);
    world.until_ring();
    let kept = serde_json::to_string(world.bell.ledger()).unwrap();
    world.bell = Bell::new(Limits::default(), serde_json::from_str(&kept).unwrap());
    assert_eq!(world.until_ring(), Some(60_000), "a reminder, not a new ring");
}

#[test]
fn a_failed_ring_does_not_delay_new_mail() {
    let mut world = World::new(&["a"]);
    world.until_ring();
    world.bell.ledger_mut().failed = Some(crate::ledger::FailedRing { at: world.now, detail: "no".into() });
    world.waiting.push(mail("b"));
    assert_eq!(world.until_ring(), Some(10_000));
}
