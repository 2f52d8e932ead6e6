//! The household: one owner's agents and that person.

use amb_core::doc::{Access, AgentEntry, ConnectionChange, HouseholdChange, ProfilePatch, TokenInfo};
use amb_core::mailbox::TaskFilter;
use amb_core::{AllowFrom, Code, Event, Kind, TaskState};
use amb_store::{AgentsPage, Join, Once};

use super::*;

pub(super) const OWNER: &str = "amb_household_owner";

pub(super) fn token(text: &str, person: bool) -> Option<Join> {
    Some(Join { token: KeyHash::of(text), person })
}

impl TestStore {
    /// A household, and its person.
    pub(super) async fn household_of(&self, person: &str) -> Agent {
        self.found_household(KeyHash::of(OWNER), true, at(0)).await.unwrap().unwrap();
        let new = NewAgent { join: token(OWNER, true), ..new_agent(person) };
        self.register_agent(new, at(0)).await.unwrap().answer
    }

    pub(super) async fn join(&self, text: &str, with: &str) -> Agent {
        let new = NewAgent { join: token(with, false), ..new_agent(text) };
        self.register_agent(new, at(0)).await.unwrap().answer
    }

    async fn machine(&self, person: &Agent, label: &str) -> (uuid::Uuid, String) {
        let token = format!("amb_household_{label}");
        (self.add_machine(person, label, KeyHash::of(&token), at(1)).await.unwrap().id, token)
    }

    async fn may_send(&self, from: &Agent, to: &Agent) -> bool {
        match self.send(from, Draft::text(to.name.clone(), "Plan", "x"), at(1)).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), Code::NotConnected, "{error:?}");
                false
            }
        }
    }

    async fn names(&self, caller: &Agent, after: Option<&str>, limit: u32) -> Vec<AgentEntry> {
        self.agents(caller, AgentsPage { after: after.map(name), limit }, at(5)).await.unwrap()
    }
}

fn changes(entries: Vec<amb_core::Entry>) -> Vec<(String, HouseholdChange, Option<String>)> {
    let changes = entries.into_iter().filter_map(|entry| match entry.event {
        Event::HouseholdChanged { agent, change, by, .. } => {
            Some((agent.to_string(), change, by.map(|by| by.to_string())))
        }
        _ => None,
    });
    changes.collect()
}

pub async fn a_household_is_founded_once_and_its_members_write_without_a_code(store: TestStore) {
    let ann = store.household_of("ann").await;
    assert_eq!(store.found_household(KeyHash::of("another"), true, at(1)).await.unwrap(), None, "there is one");
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let stranger = store.enter("stranger").await;
    for (from, to) in [(&ann, &coder), (&coder, &ann), (&coder, &writer), (&writer, &coder)] {
        assert!(store.may_send(from, to).await, "{} to {}", from.name, to.name);
        assert!(!store.may_send(from, &stranger).await);
        assert!(!store.may_send(&stranger, to).await);
    }
    let log = changes(store.events(ann.key, 0, 100).await.unwrap());
    let joined = |name: &str| (name.to_owned(), HouseholdChange::Joined, None);
    assert_eq!(log, [joined("coder"), joined("writer")]);
    assert!(changes(store.events(coder.key, 0, 100).await.unwrap()).is_empty(), "the person alone is told");
    assert_eq!(
        code(store.request_connection(&coder, Ask::new(writer.name.clone(), None), at(2)).await),
        Code::Conflict,
        "they need none"
    );
    let seen = store.household(&coder, at(3)).await.unwrap();
    let members: Vec<_> = seen.members.iter().map(|member| (member.name.as_str(), member.person)).collect();
    assert_eq!(members, [("ann", true), ("coder", false), ("writer", false)]);
    assert_eq!(seen.machines.len(), 1);
    assert!(seen.machines[0].owner && seen.members.iter().all(|member| member.machine == Some(seen.machines[0].id)));
    assert_eq!(code(store.household(&stranger, at(3)).await), Code::NotFound);
    // Another household on the same server is strangers.
    store.found_household(KeyHash::of("theirs"), false, at(4)).await.unwrap().unwrap();
    let theirs = store.join("theirs", "theirs").await;
    assert!(!store.may_send(&theirs, &coder).await && !store.may_send(&coder, &theirs).await);
}

pub async fn mail_to_oneself_is_refused(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, lone) = (store.join("coder", OWNER).await, store.enter("lone").await);
    // Together with other sends, which may share its transaction.
    let sent = super::races::at_once(12, |n| {
        let (store, ann, coder, lone) = (store.clone(), ann.clone(), coder.clone(), lone.clone());
        async move {
            let (from, to) = match n % 4 {
                0 => (&coder, "coder"),
                1 => (&coder, "CODER"),
                2 => (&lone, "lone"),
                _ => (&ann, "coder"),
            };
            let kind = if n < 6 { Kind::Message } else { Kind::Task };
            let draft = Draft { kind, ..Draft::text(name(to), format!("Note {n}"), "x") };
            store.send(from, draft, at(1)).await.map(drop).map_err(|error| error.code())
        }
    });
    for (n, sent) in sent.await.into_iter().enumerate() {
        let expected = match n % 4 {
            3 => Ok(()),
            2 => Err(Code::NotConnected),
            _ => Err(Code::Invalid),
        };
        assert_eq!(sent, expected, "{n}");
    }
}

pub async fn a_wrong_token_registers_nobody(store: TestStore) {
    let ann = store.household_of("ann").await;
    for wrong in ["", "amb_household_other"] {
        let new = NewAgent { join: token(wrong, false), ..new_agent("coder") };
        assert_eq!(code(store.register_agent(new, at(1)).await), Code::Unauthorized);
    }
    assert_eq!(store.agent_by_name(&name("coder")).await.unwrap(), None);
    let coder = store.join("coder", OWNER).await;
    assert!(store.may_send(&coder, &ann).await);
}

pub async fn the_person_is_registered_once_with_the_owners_token(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (_, laptop) = store.machine(&ann, "laptop").await;
    let again = |with: &str| NewAgent { join: token(with, true), ..new_agent("bea") };
    assert_eq!(code(store.register_agent(again(OWNER), at(2)).await), Code::Conflict);
    assert_eq!(code(store.register_agent(again(&laptop), at(2)).await), Code::Forbidden);
    assert_eq!(code(store.register_agent(again("no token"), at(2)).await), Code::Unauthorized);
    let bea = store.join("bea", &laptop).await;
    for refused in [
        code(store.add_machine(&bea, "mine", KeyHash::of("mine"), at(3)).await),
        code(store.revoke_machine(&bea, uuid::Uuid::nil(), at(3)).await),
    ] {
        assert_eq!(refused, Code::Forbidden, "an agent is no person");
    }
    let patch = ProfilePatch { discoverable: Some(true), ..ProfilePatch::default() };
    store.update_profile(&ann, patch, at(3)).await.unwrap();
    let stranger = store.enter("stranger").await;
    assert_eq!(code(store.agent(&stranger, &ann.name, at(4)).await), Code::NotFound, "no stranger finds a person");
    let (seen, mine) = (store.agent(&bea, &ann.name, at(4)).await.unwrap(), store.profile(&ann, at(4)).await.unwrap());
    assert!(seen.person && seen.household && mine.entry.person && mine.entry.household);
    let (seen, mine) = (store.agent(&ann, &bea.name, at(4)).await.unwrap(), store.profile(&bea, at(4)).await.unwrap());
    assert!(!seen.person && seen.household && !mine.entry.person);
    // After the person was removed, another can register with the owner's token.
    store.delete_agent(&ann, hash_of("ann"), at(5)).await.unwrap();
    let cleo = NewAgent { join: token(OWNER, true), ..new_agent("cleo") };
    let cleo = store.register_agent(cleo, at(6)).await.unwrap().answer;
    assert!(store.may_send(&cleo, &bea).await);
}

pub async fn a_registered_agent_can_join_later(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (early, late) = (store.join("early", OWNER).await, store.enter("late").await);
    assert!(!store.may_send(&late, &early).await && !store.may_send(&early, &late).await);
    assert_eq!(code(store.join_household(&late, KeyHash::of("no token"), at(2)).await), Code::Unauthorized);
    let (machine, laptop) = store.machine(&ann, "laptop").await;
    for _ in 0..2 {
        store.join_household(&late, KeyHash::of(&laptop), at(2)).await.unwrap();
    }
    assert!(store.may_send(&late, &early).await && store.may_send(&early, &late).await);
    let log = changes(store.events(ann.key, 0, 100).await.unwrap());
    assert_eq!(log.iter().filter(|(who, change, _)| who == "late" && *change == HouseholdChange::Joined).count(), 1);
    let seen = store.household(&late, at(3)).await.unwrap();
    let member = seen.members.iter().find(|member| member.name == late.name).unwrap();
    assert!(!member.person && member.machine == Some(machine));
    store.found_household(KeyHash::of("theirs"), false, at(4)).await.unwrap().unwrap();
    assert_eq!(code(store.join_household(&late, KeyHash::of("theirs"), at(4)).await), Code::Conflict);
    store.leave_household(&late, &late.name, at(5)).await.unwrap();
    assert!(!store.may_send(&late, &early).await);
    store.join_household(&late, KeyHash::of("theirs"), at(6)).await.unwrap();
    assert!(!store.may_send(&late, &early).await);
}

pub async fn revoking_a_machine_removes_its_agents_at_once(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (id, laptop) = store.machine(&ann, "laptop").await;
    let coder = store.join("coder", OWNER).await;
    let (here, there) = (store.join("here", &laptop).await, store.join("there", &laptop).await);
    store.connect(&store.enter("friend").await, &here).await;
    store.say(&coder, &here, "Plan", "before").await;
    let task = |to: &Agent| Draft { kind: Kind::Task, ..Draft::text(to.name.clone(), "Build", "it") };
    let given = store.send(&ann, task(&here), at(2)).await.unwrap().answer.task.unwrap().id;
    let taken = store.send(&here, task(&coder), at(2)).await.unwrap().answer.task.unwrap().id;
    let friend = store.agent_by_name(&name("friend")).await.unwrap().unwrap();
    let kept = store.send(&friend, task(&here), at(2)).await.unwrap().answer.task.unwrap().id;
    store.set_task_state(&coder, &taken, TaskState::Accepted, None, at(3)).await.unwrap();
    let key = "chat:1".parse().unwrap();
    store.transcript_append(&here, None, &key, super::keeping::line("hi", None), at(3)).await.unwrap();
    store.transcript_share(&here, &key, &coder.name, Some(Access::Read)).await.unwrap();
    assert_eq!(store.transcript_recent(&coder, Some(&here.name), &key, 9).await.unwrap().len(), 1);

    let heads = [store.event_head(here.key).await.unwrap(), store.event_head(coder.key).await.unwrap()];
    let revoked = store.revoke_machine(&ann, id, at(4)).await.unwrap();
    assert!(!revoked.entries.is_empty());
    for (from, to) in [(&ann, &here), (&here, &ann), (&coder, &here), (&here, &coder), (&here, &there)] {
        assert!(!store.may_send(from, to).await, "{} to {}", from.name, to.name);
    }
    assert!(store.may_send(&coder, &ann).await && store.may_send(&friend, &here).await);
    let log = changes(store.events(here.key, heads[0], 100).await.unwrap());
    assert_eq!(log, [("here".to_owned(), HouseholdChange::Left, Some("ann".to_owned()))]);
    let state = |agent: Agent, id| {
        let store = store.clone();
        async move { store.task(&agent, &id).await.unwrap() }
    };
    let ended = state(ann.clone(), given).await;
    assert_eq!(ended.state, TaskState::Rejected);
    assert!(ended.note.unwrap().contains("here left the household"));
    assert_eq!(state(coder.clone(), taken.clone()).await.state, TaskState::Failed);
    assert_eq!(state(here.clone(), kept).await.state, TaskState::Pending, "a connection still covers it");
    assert!(store.event_head(coder.key).await.unwrap() > heads[1], "both sides of a task are told");
    let moved = store.set_task_state(&coder, &taken, TaskState::Completed, None, at(5)).await;
    assert_eq!(code(moved), Code::NotConnected);
    assert!(store.transcript_recent(&coder, Some(&here.name), &key, 9).await.is_err());
    assert_eq!(code(store.household(&here, at(5)).await), Code::NotFound);
    let new = NewAgent { join: token(&laptop, false), ..new_agent("late") };
    assert_eq!(code(store.register_agent(new, at(5)).await), Code::Unauthorized);
    assert_eq!(code(store.revoke_machine(&ann, id, at(6)).await), Code::NotFound);
    let machines = store.household(&ann, at(6)).await.unwrap().machines;
    assert_eq!(machines.iter().map(|machine| machine.revoked_at.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(code(store.revoke_machine(&ann, machines[0].id, at(6)).await), Code::Conflict, "the owner's");
    assert!(store.tasks(&here, TaskFilter { open: true, ..TaskFilter::default() }, 10).await.unwrap().len() == 1);
}

pub async fn an_agent_that_leaves_a_household_leaves_its_groups(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (id, laptop) = store.machine(&ann, "laptop").await;
    let (coder, there) = (store.join("coder", OWNER).await, store.join("there", &laptop).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    store.connect(&friend, &there).await;
    let groups = [(&coder, "ours"), (&there, "theirs"), (&friend, "abroad")];
    for (owner, group) in groups {
        store.create_group(owner, &name(group), at(1)).await.unwrap();
        for member in [&coder, &there, &friend].into_iter().filter(|member| member.key != owner.key) {
            store.invite_to_group(owner, &name(group), &member.name, at(1)).await.unwrap();
            store.join_group(member, &name(group), true).await.unwrap();
        }
    }
    // A group to which it was only invited.
    store.create_group(&ann, &name("later"), at(1)).await.unwrap();
    store.invite_to_group(&ann, &name("later"), &there.name, at(1)).await.unwrap();
    let chat = |from: &Agent, group: &str| {
        let (store, from, draft) = (store.clone(), from.clone(), Draft::text(name(group), "Chat", "hi"));
        async move { store.send(&from, draft, at(2)).await.map(drop) }
    };
    for (from, (_, group)) in [&coder, &there, &friend].into_iter().flat_map(|from| groups.map(|group| (from, group))) {
        chat(from, group).await.unwrap();
    }
    store.revoke_machine(&ann, id, at(3)).await.unwrap();
    let heads = [store.event_head(there.key).await.unwrap(), store.event_head(coder.key).await.unwrap()];
    assert_eq!(code(chat(&there, "ours").await), Code::NotConnected, "as a group that one was never asked to");
    assert_eq!(code(chat(&coder, "theirs").await), Code::NotConnected);
    assert_eq!(code(store.join_group(&there, &name("later"), true).await), Code::NotFound);
    for (from, group) in [(&coder, "ours"), (&friend, "ours")] {
        chat(from, group).await.unwrap();
    }
    assert_eq!(store.events(there.key, heads[0], 9).await.unwrap(), [], "nothing of it reaches who left");
    let head = store.event_head(coder.key).await.unwrap();
    chat(&there, "theirs").await.unwrap();
    assert_eq!(store.events(coder.key, head, 9).await.unwrap(), [], "nor the other way");
    // A group that a connection allows stays.
    for from in [&coder, &there, &friend] {
        chat(from, "abroad").await.unwrap();
    }
    let names = async |agent: &Agent| -> Vec<String> {
        store.groups(agent).await.unwrap().iter().map(|group| group.name.to_string()).collect()
    };
    assert_eq!((names(&there).await, names(&friend).await.len()), (vec!["theirs".to_owned(), "abroad".to_owned()], 3));
}

pub async fn members_leave_and_are_removed(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    assert_eq!(code(store.leave_household(&coder, &writer.name, at(1)).await), Code::Forbidden);
    assert_eq!(code(store.leave_household(&ann, &name("nobody"), at(1)).await), Code::NotFound);
    assert_eq!(code(store.leave_household(&ann, &ann.name, at(1)).await), Code::Conflict, "the person stays");
    let head = store.event_head(ann.key).await.unwrap();
    store.leave_household(&coder, &coder.name, at(2)).await.unwrap();
    store.leave_household(&ann, &name("WRITER"), at(2)).await.unwrap();
    let log = changes(store.events(ann.key, head, 100).await.unwrap());
    assert_eq!(log, [("coder".to_owned(), HouseholdChange::Left, None)], "what one did oneself is no news");
    assert!(!store.may_send(&coder, &ann).await && !store.may_send(&ann, &writer).await);
    assert_eq!(code(store.leave_household(&coder, &coder.name, at(3)).await), Code::NotFound);
    // Outside of the household it can connect by a code.
    store.connect(&coder, &ann).await;
    assert!(store.may_send(&coder, &ann).await);
    store.delete_agent(&store.join("short", OWNER).await, hash_of("short"), at(4)).await.unwrap();
    assert_eq!(store.household(&ann, at(5)).await.unwrap().members.len(), 1);
}

pub async fn the_list_of_agents_begins_with_the_household(store: TestStore) {
    let ann = store.household_of("mia").await;
    for stranger in ["alf", "bob", "zoe"] {
        store.enter(stranger).await;
    }
    for member in ["carl", "xeno"] {
        store.join(member, OWNER).await;
    }
    let names = |entries: &[AgentEntry]| entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>();
    let all = store.names(&ann, None, 100).await;
    assert_eq!(names(&all), ["carl", "mia", "xeno", "alf", "bob", "zoe"]);
    assert_eq!(all.iter().map(|entry| entry.household).collect::<Vec<_>>(), [true, true, true, false, false, false]);
    for limit in 1..=6 {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = store.names(&ann, after.as_deref(), limit).await;
            let Some(last) = page.last() else { break };
            after = Some(last.name.to_string());
            paged.extend(names(&page));
        }
        assert_eq!(paged, names(&all), "in pages of {limit}");
    }
    let zoe = store.agent_by_name(&name("zoe")).await.unwrap().unwrap();
    let seen = store.names(&zoe, None, 100).await;
    assert_eq!(names(&seen), ["alf", "bob", "carl", "xeno", "zoe"], "by name, without the person");
    assert!(seen.iter().all(|entry| !entry.household && !entry.person));
}

pub async fn adding_a_machine_is_idempotent_under_its_key(store: TestStore) {
    let ann = store.household_of("ann").await;
    let asked = |agent: &Agent| agent.clone().under(Some(Once::new("k".into(), "machines", &"laptop").unwrap()));
    let first = store.add_machine(&asked(&ann), "laptop", KeyHash::of("first"), at(1)).await.unwrap();
    let again = store.add_machine(&asked(&ann), "laptop", KeyHash::of("second"), at(2)).await.unwrap();
    assert_eq!(first, again);
    let other = ann.clone().under(Some(Once::new("k".into(), "machines", &"desktop").unwrap()));
    assert_eq!(code(store.add_machine(&other, "desktop", KeyHash::of("third"), at(3)).await), Code::Conflict);
    assert_eq!(store.household(&ann, at(3)).await.unwrap().machines.len(), 2);
    let new = NewAgent { join: token("first", false), ..new_agent("coder") };
    assert_eq!(code(store.register_agent(new, at(4)).await), Code::Unauthorized, "the token of the lost answer");
    store.join("coder", "second").await;
    let machines = (2..amb_core::limits::MAX_HOUSEHOLD_MACHINES).map(|n| format!("machine {n}"));
    for label in machines {
        store.add_machine(&ann, &label, KeyHash::of(&label), at(5)).await.unwrap();
    }
    assert_eq!(code(store.add_machine(&ann, "more", KeyHash::of("more"), at(5)).await), Code::Conflict);
    store.revoke_machine(&ann, first.id, at(6)).await.unwrap();
    store.add_machine(&ann, "more", KeyHash::of("more"), at(7)).await.unwrap();
    assert_eq!(code(store.add_machine(&asked(&ann), "laptop", KeyHash::of("x"), at(8)).await), Code::NotFound);
}

pub async fn a_token_says_what_it_gives(store: TestStore) {
    let says = async |token: &str| store.household_token(KeyHash::of(token)).await;
    let info = |owner, person: Option<&str>| TokenInfo { owner, person: person.map(name) };
    store.found_household(KeyHash::of("theirs"), false, at(0)).await.unwrap().unwrap();
    assert_eq!(says("theirs").await.unwrap(), info(true, None), "its person comes later");
    store.found_household(KeyHash::of(OWNER), false, at(0)).await.unwrap().unwrap();
    let new = NewAgent { join: token(OWNER, true), ..new_agent("ann") };
    let ann = store.register_agent(new, at(0)).await.unwrap().answer;
    let (machine, laptop) = store.machine(&ann, "laptop").await;
    assert_eq!(says(OWNER).await.unwrap(), info(true, Some("ann")));
    assert_eq!(says(&laptop).await.unwrap(), info(false, Some("ann")));
    assert_eq!(code(says("no token").await), Code::Unauthorized);
    store.revoke_machine(&ann, machine, at(2)).await.unwrap();
    assert_eq!(code(says(&laptop).await), Code::Unauthorized);
}

pub async fn a_replaced_owners_token_is_invalid(store: TestStore) {
    let ann = store.household_of("ann").await;
    store.renew_household(&ann.name, KeyHash::of("renewed"), at(1)).await.unwrap();
    let new = NewAgent { join: token(OWNER, false), ..new_agent("coder") };
    assert_eq!(code(store.register_agent(new, at(2)).await), Code::Unauthorized);
    let coder = store.join("coder", "renewed").await;
    assert!(store.may_send(&coder, &ann).await, "its members stay");
    let stranger = store.enter("stranger").await;
    assert_eq!(code(store.renew_household(&stranger.name, KeyHash::of("x"), at(3)).await), Code::NotFound);
}

/// The agents of the table: `me` sends, all others receive.
const OTHERS: [(&str, bool); 9] = [
    ("member", true),
    ("person", true),
    ("connected", true),
    ("stranger", false),
    // One that `me` blocked, and one that blocked `me`.
    ("blocked", false),
    ("blocker", false),
    // One of a revoked machine, and one that the person removed.
    ("revoked", false),
    ("removed", false),
    // One of another household at the same office.
    ("theirs", false),
];

pub async fn who_may_write_to_whom(store: TestStore) {
    let person = store.household_of("person").await;
    let (laptop_id, laptop) = store.machine(&person, "laptop").await;
    store.found_household(KeyHash::of("theirs"), false, at(0)).await.unwrap();
    let me = store.join("me-agent", OWNER).await;
    let mut agents = vec![(person.clone(), true)];
    for (text, may) in OTHERS.into_iter().filter(|(text, _)| *text != "person") {
        let agent = match text {
            "member" | "blocked" | "blocker" | "removed" => store.join(text, OWNER).await,
            "revoked" => store.join(text, &laptop).await,
            "theirs" => store.join(text, "theirs").await,
            _ => store.enter(text).await,
        };
        agents.push((agent, may));
    }
    let of = |text: &str| agents.iter().find(|(agent, _)| agent.name.as_str() == text).unwrap().0.clone();
    store.connect(&of("connected"), &me).await;
    // Tasks that were sent while it was allowed, to be moved when it is not.
    let task = |to: &Agent| Draft { kind: Kind::Task, ..Draft::text(to.name.clone(), "Build", "it") };
    let mut given = Vec::new();
    for text in ["member", "person", "connected", "blocked", "blocker", "revoked", "removed"] {
        given.push((of(text), store.send(&of(text), task(&me), at(1)).await.unwrap().answer.task.unwrap().id));
    }
    let key = "chat:1".parse().unwrap();
    store.transcript_append(&me, None, &key, super::keeping::line("hi", None), at(1)).await.unwrap();
    store.create_group(&me, &name("crew"), at(1)).await.unwrap();
    store.change_connection(&me, &name("blocked"), ConnectionChange::Block, at(2)).await.unwrap();
    store.change_connection(&of("blocker"), &me.name, ConnectionChange::Block, at(2)).await.unwrap();
    store.revoke_machine(&person, laptop_id, at(2)).await.unwrap();
    store.leave_household(&person, &name("removed"), at(2)).await.unwrap();

    for (agent, id) in given {
        let may = agents.iter().any(|(other, may)| *may && other.key == agent.key);
        let moved = store.set_task_state(&me, &id, TaskState::Accepted, None, at(3)).await;
        assert_eq!(moved.is_ok(), may, "the task of {}", agent.name);
        if !may {
            assert!(store.task(&me, &id).await.unwrap().state.is_terminal(), "{}", agent.name);
        }
    }
    for (agent, may) in &agents {
        let there = &agent.name;
        assert_eq!(store.may_send(&me, agent).await, *may, "to {there}");
        assert_eq!(store.may_send(agent, &me).await, *may, "from {there}");
        let many = [name("member"), there.clone()];
        let sent = store.send_all(&me, &many, Draft::text(there.clone(), "All", "x"), at(3)).await;
        assert_eq!(sent.is_ok(), *may, "to many with {there}");
        for (from, to) in [(&me, agent), (agent, &me)] {
            assert_eq!(store.send(from, task(to), at(3)).await.is_ok(), *may, "a task {} to {}", from.name, to.name);
        }
        assert_eq!(store.invite_to_group(&me, &name("crew"), there, at(3)).await.is_ok(), *may, "invited {there}");
        let shared = store.transcript_share(&me, &key, there, Some(Access::Read)).await;
        assert_eq!(shared.is_ok(), *may, "shared with {there}");
    }
    // allow_from holds in a household too.
    let picky = AllowFrom(vec!["person".into()]);
    let patch = ProfilePatch { allow_from: Some(picky), ..ProfilePatch::default() };
    store.update_profile(&of("member"), patch, at(4)).await.unwrap();
    let sent = store.send(&person, Draft::text(name("member"), "Plan", "x"), at(5)).await;
    assert!(sent.is_ok());
    assert_eq!(code(store.send(&me, Draft::text(name("member"), "Plan", "x"), at(5)).await), Code::NotAllowed);
    let rejected = store.send(&me, task(&of("member")), at(5)).await.unwrap().answer.task.unwrap();
    assert_eq!(rejected.state, TaskState::Rejected);
    // Lifting a block restores the household.
    store.change_connection(&me, &name("blocked"), ConnectionChange::Unblock, at(6)).await.unwrap();
    assert!(store.may_send(&me, &of("blocked")).await && store.may_send(&of("blocked"), &me).await);
}

pub async fn no_send_succeeds_after_a_machine_was_revoked(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (id, laptop) = store.machine(&ann, "laptop").await;
    let (coder, there) = (store.join("coder", OWNER).await, store.join("there", &laptop).await);
    let storm: Vec<_> = [(&there, &coder), (&coder, &there), (&there, &ann), (&there, &coder)]
        .map(|(from, to)| {
            let (store, from, to) = (store.clone(), from.clone(), to.clone());
            tokio::spawn(async move { while store.may_send(&from, &to).await {} })
        })
        .into();
    // Let some sends succeed before.
    while store.event_head(coder.key).await.unwrap() < 20 {
        tokio::task::yield_now().await;
    }
    store.revoke_machine(&ann, id, at(2)).await.unwrap();
    let heads = [coder.key, there.key, ann.key];
    let mut before = Vec::new();
    for key in heads {
        before.push(store.event_head(key).await.unwrap());
    }
    for sender in storm {
        sender.await.unwrap();
    }
    for (key, head) in heads.into_iter().zip(before) {
        assert_eq!(store.event_head(key).await.unwrap(), head, "nothing came after the answer");
    }
}
