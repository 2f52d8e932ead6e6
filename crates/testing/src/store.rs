//! Conformance tests for every backend of the store. [`store_conformance!`](crate::store_conformance!) makes a test of each test
//! case.
//!
//! A test case gets an empty store and passes its own times: it starts at [`START`].

#![allow(missing_docs)]

pub mod agents;
pub mod carrying;
pub mod connections;
pub mod consent;
pub mod directory;
pub mod groups;
pub mod household;
pub mod household_tasks;
pub mod keeping;
pub mod log;
pub mod mail;
pub mod person;
pub mod quotas;
pub mod races;
pub mod receipts;
pub mod stepping_in;
pub mod tasks;
pub mod threads;
pub mod wake;

use std::future::Future;
use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Card, Draft, SessionId, Timestamp};

use amb_store::{Agent, Ask, KeyHash, NewAgent, NewKey, Result, Store, StoreError, Written};

/// The time at which test cases begin, in seconds since 1970.
pub const START: i64 = 1_772_000_000;

/// A time of a test case, in seconds after its beginning.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

/// A store with shorthands for what test cases do often.
#[derive(Clone)]
pub struct TestStore(pub Arc<dyn Store>);

impl std::ops::Deref for TestStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

pub fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

pub fn new_agent(text: &str) -> NewAgent {
    NewAgent {
        name: name(text),
        key_hash: KeyHash::of(&key_of(text)),
        key_prefix: "amb_0123".into(),
        owner_contact: Some(format!("{text}@example.org")),
        card: Card::default(),
        join: None,
    }
}

pub fn key_of(text: &str) -> String {
    format!("amb_key_of_{text}")
}

/// The hash of the key that [`new_agent`] gives.
pub fn hash_of(text: &str) -> KeyHash {
    KeyHash::of(&key_of(text))
}

/// A key to replace another.
pub fn new_key(text: &str, prefix: &str) -> NewKey {
    NewKey { hash: KeyHash::of(text), prefix: prefix.to_owned() }
}

/// The code of a result that must be an error.
#[track_caller]
pub fn code<T: std::fmt::Debug>(answer: Result<T>) -> amb_core::Code {
    let error: StoreError = answer.unwrap_err();
    error.code()
}

impl TestStore {
    pub async fn enter(&self, text: &str) -> Agent {
        self.register_agent(new_agent(text), at(0)).await.unwrap().answer
    }

    pub async fn connect(&self, from: &Agent, to: &Agent) {
        let asked = self.request_connection(from, Ask::new(to.name.clone(), None), at(0)).await.unwrap();
        self.approve_connection(to, &asked.answer.verification_code, at(0)).await.unwrap();
    }

    /// Two agents that may write to each other.
    pub async fn pair(&self) -> (Agent, Agent) {
        let (alice, bob) = (self.enter("alice").await, self.enter("bob").await);
        self.connect(&alice, &bob).await;
        (alice, bob)
    }

    pub async fn say(&self, from: &Agent, to: &Agent, subject: &str, text: &str) -> Written<Sent> {
        self.send(from, Draft::text(to.name.clone(), subject, text), at(1)).await.unwrap()
    }

    /// The texts of a session, newest first; marks them as read.
    pub async fn texts(&self, caller: &Agent, session: &SessionId, limit: u32) -> Vec<String> {
        let page = HistoryPage { limit, before: None };
        let history = self.history(caller, session, page, at(2)).await.unwrap().answer;
        history.messages.into_iter().map(|message| message.content).collect()
    }
}

/// A guard that is kept until a test case ends, and then checks what its backend can tell.
pub trait Guard {
    /// Fails where a statement scanned a whole table.
    fn check(self) -> impl Future<Output = ()>;
}

impl Guard for crate::SqliteFile {
    async fn check(self) {
        self.assert_no_full_scan();
    }
}

impl Guard for crate::PostgresDatabase {
    async fn check(self) {
        self.assert_no_full_scan().await;
    }
}

/// Makes a test of every test case. `$fresh` is an async block that returns a guard (kept until the test case ends) and an empty
/// store: `store_conformance!(async { (guard, store) })`.
#[macro_export]
macro_rules! store_conformance {
    ($fresh:expr) => {
        $crate::store_conformance_cases! { $fresh;
            agents: [
                a_registered_agent_is_known_by_its_key_and_by_its_name,
                a_name_is_given_once,
                a_name_that_differs_in_case_alone_is_taken_and_means_the_one_there_is,
            ]
            connections: [
                a_request_is_seen_by_its_target_and_approved_by_its_code,
                a_request_is_refused_for_a_reason_that_is_said,
                a_code_is_good_for_its_target_alone_and_once,
                a_taken_code_is_made_anew,
                a_private_code_reaches_neither_inbox_nor_event,
                an_expired_request_is_gone_and_in_nobodys_way,
                requests_from_both_sides_end_in_one_connection,
                a_few_requests_wait_at_most,
                so_many_requests_wait_for_one_agent_at_most,
            ]
            mail: [
                mail_needs_a_connection,
                a_message_is_in_the_inbox_and_in_the_log,
                a_subject_finds_its_session_in_any_case_and_from_both_sides,
                a_session_is_continued_by_its_members_alone,
                a_repeated_send_answers_the_same_and_writes_nothing,
                a_key_used_for_another_draft_is_a_conflict,
                whole_messages_come_back_as_they_were_sent,
                replies_and_relays_carry_ttl_and_trace,
                text_of_any_script_and_length_is_kept,
                a_refused_send_leaves_nothing,
            ]
            carrying: [
                a_carried_message_keeps_its_id_its_ttl_and_its_trace,
                a_message_carried_twice_is_there_once,
                a_carried_task_has_the_id_of_its_message,
                a_request_can_be_accepted_without_its_code,
            ]
            threads: [
                an_empty_inbox_is_empty,
                sessions_are_ordered_by_their_newest_message,
                unread_only_leaves_out_what_was_read,
                history_marks_what_it_shows_and_no_more,
                the_sender_learns_that_its_message_was_read,
                before_pages_through_a_whole_history_once_each,
                history_is_for_members,
                reading_ones_own_messages_marks_nothing,
            ]
            log: [
                entries_are_numbered_from_one_without_gaps,
                a_reader_goes_on_at_any_cursor,
                the_entries_that_a_verb_returns_are_those_of_the_log,
                pruning_removes_old_events_and_never_mail,
                numbers_are_not_given_twice_after_pruning,
                a_listener_that_fell_behind_or_whose_key_ended_is_found,
                a_cursor_beyond_the_end_goes_on_from_what_was_not_handed_over,
                the_logs_of_a_household_are_read_as_one,
                a_page_of_a_households_logs_is_bounded_and_fair,
            ]
            races: [
                a_name_registered_at_once_has_one_winner,
                one_subject_sent_at_once_makes_one_session,
                requests_at_once_make_one_pending_row,
                approvals_at_once_make_one_connection,
                a_key_used_at_once_sends_one_message,
                sends_at_once_are_numbered_without_gaps,
                messages_that_overtake_each_other_do_not_go_back_in_time,
                times_within_a_session_do_not_go_back_however_mail_comes,
                a_log_has_no_gap_for_who_reads_it_while_mail_comes,
                what_is_shown_is_the_same_while_its_version_is,
                a_history_is_the_same_while_its_version_is,
                a_rotation_that_races_a_removal_revives_nobody,
            ]
            consent: [
                a_rejected_request_is_over_and_may_be_made_again,
                a_revoked_connection_carries_nothing_more,
                a_blocked_agent_is_neither_heard_nor_told_so,
                requests_run_out_by_themselves_and_tell_who_asked,
                after_a_revocation_was_answered_no_send_gets_through,
            ]
            household: [
                a_household_is_founded_once_and_its_members_write_without_a_code,
                a_wrong_token_registers_nobody,
                the_person_is_made_once_with_the_owners_token,
                an_agent_that_is_registered_joins_later,
                a_revoked_machine_is_out_at_once,
                members_leave_and_are_removed,
                the_directory_shows_the_household_first,
                a_machine_asked_for_again_under_its_key_is_the_same_one,
                an_owners_token_that_was_renewed_is_void,
                who_may_write_to_whom,
                groups_of_a_household_end_for_who_leaves_it,
                nobody_writes_to_itself,
                after_a_machine_was_revoked_no_send_gets_through,
            ]
            person: [
                mail_of_the_person_is_marked_by_the_office_alone,
                no_metadata_is_the_persons_mark,
                a_preview_keeps_the_mark_beside_long_metadata,
                in_a_group_the_mark_is_for_the_persons_own_household,
                the_mark_says_what_was_so_when_the_mail_was_sent,
                the_persons_task_is_marked_for_whom_it_is_given_to_next,
            ]
            stepping_in: [
                a_paused_agents_mail_waits_and_arrives_in_order_when_it_is_resumed,
                only_the_person_steps_in_and_only_at_home,
                a_conversation_that_a_person_ended_takes_no_more_mail,
                a_groups_conversation_is_ended_by_its_owners_person_alone,
                after_a_conversation_was_ended_no_send_gets_through,
                nothing_is_claimed_after_a_pause_was_answered,
                only_a_members_key_is_renewed_and_it_ends_all_others,
                what_a_person_decides_in_an_agents_name_is_told_with_the_act,
            ]
            household_tasks: [
                a_canceled_task_says_who_did_it_to_both_sides,
                a_reassigned_task_is_new_mail_with_the_original_text,
                a_task_moves_only_to_who_can_have_it,
                a_task_of_a_strangers_is_given_on_within_bounds,
                a_task_ends_in_one_way_however_many_act_at_once,
            ]
            wake: [
                a_report_replaces_the_one_before_and_counts_what_is_new,
                a_few_client_sessions_are_kept_for_a_day,
                how_wake_ups_stand_is_for_the_agent_and_its_person,
                an_agent_whose_mail_waits_and_that_nothing_wakes_needs_its_person,
            ]
            directory: [
                the_directory_shows_whom_one_may_see,
                the_directory_comes_in_pages,
                a_profile_is_changed_in_part_and_checked,
                presence_follows_the_signs_of_life,
                a_rotated_key_works_at_once_and_the_old_one_for_a_while,
                a_key_in_its_grace_neither_rotates_nor_removes,
                a_key_that_the_operator_issues_ends_all_others,
                a_deleted_agent_leaves_others_history_readable,
            ]
            receipts: [
                a_receipt_says_queued_then_delivered_then_read,
                a_ring_is_told_to_the_sender_once_and_reads_nothing,
                an_ack_is_for_all_or_none,
                messages_are_listed_by_condition_and_page,
                a_claimed_message_is_held_by_one_until_its_lease_ends,
                a_lease_is_renewed_while_it_holds_and_never_after,
                claims_at_once_hand_each_message_to_one,
                a_long_stretch_is_delivered_whole,
            ]
            tasks: [
                a_task_goes_from_pending_to_completed_and_its_owner_hears_of_it,
                states_that_are_skipped_are_passed_through,
                the_office_rejects_what_may_not_be_given,
                accepts_at_once_respect_the_quota,
                an_overdue_task_is_told_to_both_sides_once,
                a_delegated_task_knows_its_chain,
                a_task_that_was_delivered_to_nobody_is_its_senders_alone,
                what_is_open_between_two_ends_with_their_connection,
                what_is_open_ends_when_an_agent_leaves,
            ]
            groups: [
                a_groups_mail_reaches_every_other_member_once,
                nobody_gets_a_groups_mail_without_having_agreed,
                one_draft_to_many_reaches_all_or_none,
                a_member_gets_no_group_mail_from_whom_it_does_not_hear,
                members_leave_and_are_removed_and_a_group_is_handed_on,
                an_agent_that_several_names_mean_gets_one_copy,
                a_group_has_a_size,
            ]
            keeping: [
                a_transcript_keeps_each_line_once_for_those_who_may,
                a_transcripts_key_is_its_owners_and_its_lines_have_authors,
                lines_appended_at_once_are_each_there_once,
                search_finds_ones_own_mail_and_never_anothers,
                mail_of_many_agents_is_made_findable_together,
                old_read_mail_can_be_removed_and_nothing_else,
                a_round_of_removing_passes_by_what_must_stay,
                mail_that_somebody_still_needs_is_not_removed,
                an_export_holds_all_of_ones_mail_once,
                a_page_counts_what_its_texts_are_as_json,
            ]
            quotas: [
                a_send_at_a_limit_is_refused_and_leaves_nothing,
                removing_read_mail_makes_room,
                mail_to_many_is_counted_for_each_and_refused_whole,
                a_task_can_end_at_the_limit,
                the_rejection_of_a_task_is_charged_to_its_sender,
                lines_of_a_transcript_are_charged_to_their_author,
                the_office_has_limits_of_its_own,
            ]
        }
    };
}

/// The test cases of [`store_conformance!`](crate::store_conformance!).
#[macro_export]
#[doc(hidden)]
macro_rules! store_conformance_cases {
    ($fresh:expr; $($module:ident: [$($case:ident),* $(,)?])*) => {
        $(mod $module {
            use super::*;
            use $crate::store::Guard as _;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (guard, store) = $fresh.await;
                    let store: std::sync::Arc<dyn amb_store::Store> = store;
                    $crate::store::$module::$case($crate::store::TestStore(store.clone())).await;
                    store.close().await;
                    drop(store);
                    guard.check().await;
                }
            )*
        })*
    };
}
