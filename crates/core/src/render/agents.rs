//! A list of agents. A card is its owner's own text, so it is fenced like any other.

use super::content::person;
use super::fence::Nonce;
use super::page::{Page, Tag};
use crate::doc::AgentEntry;
use crate::name::AgentName;

/// Renders the agents for `me`, who is marked among them.
pub fn render_agents(agents: &[AgentEntry], me: &AgentName, nonce: &Nonce) -> String {
    let mut page = Page::new(nonce);
    if agents.is_empty() {
        page.say("Nobody is here yet.\n");
        return page.finish();
    }
    page.notice();
    for agent in agents {
        let card = &agent.card;
        let tasks = format!("{}/{}", agent.presence.current_tasks.len(), card.max_concurrent_tasks);
        let capabilities = card.capabilities.join(", ");
        let attributes = [
            ("name", Some(agent.name.as_str())),
            ("this_agent", (agent.name == *me).then_some("yes")),
            person(agent.person && agent.household),
            ("status", Some(agent.presence.status.as_str())),
            ("tasks", Some(tasks.as_str())),
            ("capabilities", (!capabilities.is_empty()).then_some(capabilities.as_str())),
        ];
        if card.description.is_empty() {
            page.empty(Tag::Agent, &attributes);
        } else {
            page.open(Tag::Agent, &attributes).body(&card.description).close(Tag::Agent);
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Card, Presence, Status};
    use crate::render::hostile::{frames, hostile_text, nonce};
    use proptest::prelude::*;

    fn agent(name: &str, description: &str, capabilities: &[&str]) -> AgentEntry {
        AgentEntry {
            name: name.parse().unwrap(),
            card: Card {
                description: description.into(),
                capabilities: capabilities.iter().map(|c| (*c).into()).collect(),
                ..Card::default()
            },
            presence: Presence { status: Status::Idle, last_seen: None, current_tasks: vec![] },
            registered_at: None,
            household: false,
            person: false,
            paused: false,
        }
    }

    #[test]
    fn agents_are_shown_with_what_they_say_of_themselves() {
        let me = "bob".parse().unwrap();
        let shown =
            render_agents(&[agent("alice", "Writes Rust", &["rust", "review"]), agent("bob", "", &[])], &me, &nonce());
        assert_eq!(
            shown.split_once('\n').unwrap().1,
            "<agent-5eed5eed5eed name=\"alice\" status=\"idle\" tasks=\"0/3\" capabilities=\"rust, review\">\n\
             Writes Rust\n</agent-5eed5eed5eed>\n\
             <agent-5eed5eed5eed name=\"bob\" this_agent=\"yes\" status=\"idle\" tasks=\"0/3\"/>\n"
        );
        assert_eq!(render_agents(&[], &me, &nonce()), "Nobody is here yet.\n");
    }

    #[test]
    fn the_person_of_the_household_is_marked() {
        let kim = AgentEntry { household: true, person: true, ..agent("kim", "", &[]) };
        let stranger = AgentEntry { person: true, ..agent("eve", "", &[]) };
        let shown = render_agents(&[kim, stranger], &"bob".parse().unwrap(), &nonce());
        assert!(shown.contains("name=\"kim\" person=\"yes\" status"), "{shown}");
        assert!(shown.contains("name=\"eve\" status"), "another household's person is a stranger: {shown}");
    }

    proptest! {
        #[test]
        fn a_card_cannot_invent_an_agent(description in hostile_text(), capability in hostile_text()) {
            let shown = render_agents(&[agent("mallory", &description, &[&capability])], &"bob".parse().unwrap(), &nonce());
            let frames = frames(&shown, "agent-5eed5eed5eed");
            prop_assert_eq!(frames.opened.len(), 1, "{}", shown);
            prop_assert!(frames.opened[0].starts_with("agent-5eed5eed5eed name=\"mallory\" status="), "{}", shown);
        }
    }
}
