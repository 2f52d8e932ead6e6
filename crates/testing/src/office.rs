//! Conformance tests for every office, written against the [`Mailbox`] trait.
//!
//! An office implements [`TestOffice`] once and runs every test case with
//! [`office_conformance!`](crate::office_conformance), each on a fresh office.

mod events;
mod mail;
mod tasks;

use std::sync::Arc;

use async_trait::async_trait;

pub use events::*;
pub use mail::*;
pub use tasks::*;

use amb_core::card::Card;
use amb_core::mailbox::Mailbox;
use amb_core::name::AgentName;

/// A fresh office under test.
#[async_trait]
pub trait TestOffice: Send + Sync {
    /// A mailbox for a new agent with this card. Asking again for the same name is another process of the same agent.
    async fn mailbox(&self, name: &AgentName, card: Card) -> Arc<dyn Mailbox>;

    /// Connects two agents, if the office needs more than `allow_from`.
    async fn acquaint(&self, a: &dyn Mailbox, b: &dyn Mailbox);
}

/// Two agents that may write to each other, as most test cases need.
pub(crate) async fn pair(post: &dyn TestOffice) -> (Arc<dyn Mailbox>, Arc<dyn Mailbox>) {
    let alice = mailbox(post, "alice").await;
    let bob = mailbox(post, "bob-agent").await;
    post.acquaint(&*alice, &*bob).await;
    (alice, bob)
}

/// An agent with the default card.
pub(crate) async fn mailbox(post: &dyn TestOffice, agent: &str) -> Arc<dyn Mailbox> {
    post.mailbox(&name(agent), Card::default()).await
}

/// A valid name.
pub(crate) fn name(text: &str) -> AgentName {
    AgentName::parse(text).unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

/// Makes a test of every test case. The argument is an expression that makes a fresh [`TestOffice`], awaited for each
/// test.
///
/// ```text
/// amb_testing::office_conformance!(MyOffice::fresh().await);
/// ```
#[macro_export]
macro_rules! office_conformance {
    ($post:expr) => {
        $crate::office_conformance!(@each $post;
            a_sent_message_is_unread_until_it_is_read
            the_sender_is_set_by_the_office
            reading_marks_only_what_was_fetched
            history_pages_return_each_message_once
            one_subject_is_one_session_from_both_sides
            an_unknown_recipient_is_an_error_with_a_suggestion
            bad_input_is_refused_and_leaves_nothing
            everything_in_a_message_arrives
            a_repeat_with_the_same_key_sends_nothing
            nobody_reads_the_mail_of_others
            a_receipt_says_read_only_after_reading
            acknowledging_twice_is_no_error
            a_claimed_message_has_one_holder_until_released
            another_process_sees_what_is_claimed_and_not_acknowledged
            a_question_relayed_to_its_last_hop_is_answered_once
            urgent_mail_is_claimed_first_if_requested
            concurrent_sends_all_arrive_once
            a_natural_reply_passes_and_automatic_answers_end
            ten_rounds_of_questions_get_automatic_answers
            a_reply_belongs_to_the_session_of_what_it_answers
            relays_end_at_ttl_zero_and_never_return
            each_entry_after_a_cursor_is_returned_once
            a_waiting_reader_is_woken
            agents_are_listed_with_their_cards
            an_agent_that_leaves_is_offline
            a_task_goes_from_pending_to_completed
            a_task_over_quota_is_rejected_with_its_reason
            a_task_past_its_deadline_is_rejected_with_its_reason
            a_task_from_a_stranger_is_rejected_with_its_reason
            a_task_rejected_at_once_is_shown_only_to_its_owner
            an_illegal_move_changes_nothing
            only_the_assignee_moves_a_task
            concurrent_accepts_stop_at_the_quota
            a_failed_task_reports_its_reason_to_the_owner
            a_callback_is_shown_only_to_the_agent_that_set_it
            an_open_task_past_its_deadline_is_overdue_for_its_owner
            a_delegated_task_knows_its_parent
            single_tasks_and_agents_can_be_looked_up
        );
    };
    (@each $post:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let post = $post;
                $crate::office::$case(&post).await;
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryOffice;
    use amb_core::doc::PendingConnection;

    struct InMemory(Arc<MemoryOffice>);

    #[async_trait]
    impl TestOffice for InMemory {
        async fn mailbox(&self, name: &AgentName, card: Card) -> Arc<dyn Mailbox> {
            let mailbox = self.0.mailbox(name.clone());
            mailbox.register(card).await.unwrap();
            Arc::new(mailbox)
        }

        async fn acquaint(&self, a: &dyn Mailbox, b: &dyn Mailbox) {
            let Ok(requested) = a.connect(b.me(), None).await else { return };
            let pending: Vec<PendingConnection> = b.inbox(false).await.unwrap().pending_connections;
            assert_eq!(pending[0].connection_id, requested.connection_id);
            b.approve(&requested.verification_code).await.unwrap();
        }
    }

    mod by_allow_from {
        use super::*;
        office_conformance!(InMemory(MemoryOffice::new()));
    }

    mod by_connection {
        use super::*;
        office_conformance!(InMemory(MemoryOffice::with_connections(true)));
    }
}
