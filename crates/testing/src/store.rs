//! Conformance tests for every backend of the store. [`store_conformance!`](crate::store_conformance!) makes a test of
//! each test case.
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

/// A store with shorthands for frequent operations.
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

/// The hash of the key of [`new_agent`].
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

/// A guard that is kept until a test case ends and then checks its backend.
pub trait Guard {
    /// Fails if a statement scanned a whole table.
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

/// Makes a test of every test case. `$fresh` is an async block that returns a guard (kept until the test case ends) and
/// an empty store: `store_conformance!(async { (guard, store) })`.
#[macro_export]
macro_rules! store_conformance {
    ($fresh:expr) => {
        $crate::store_conformance_cases! { $fresh;
            agents: [
                a_registered_agent_is_known_by_its_key_and_by_its_name,
                a_name_can_be_registered_once,
                names_are_unique_and_looked_up_without_case,
            ]
            connections: [
                a_request_is_seen_by_its_target_and_approved_by_its_code,
                an_invalid_request_is_refused_with_its_reason,
                a_code_can_be_used_once_and_only_by_its_target,
                a_code_that_is_taken_is_generated_again,
                a_private_code_reaches_neither_inbox_nor_event,
                an_expired_request_is_gone_and_can_be_made_again,
                requests_from_both_sides_end_in_one_connection,
                pending_requests_from_one_agent_are_limited,
                pending_requests_to_one_agent_are_limited,
            ]
            mail: [
                mail_needs_a_connection,
                a_message_is_in_the_inbox_and_in_the_log,
                a_subject_finds_its_session_in_any_case_and_from_both_sides,
                only_members_continue_a_session,
                a_repeated_send_returns_the_same_and_writes_nothing,
                a_repeat_returns_the_same_when_its_recipient_is_gone,
                a_key_used_for_another_draft_is_a_conflict,
                messages_are_stored_with_all_their_fields,
                replies_and_relays_carry_ttl_and_trace,
                text_of_any_script_and_length_is_kept,
                a_refused_send_leaves_nothing,
            ]
            carrying: [
                a_carried_message_keeps_its_id_its_ttl_and_its_trace,
                a_message_carried_twice_is_stored_once,
                a_carried_task_has_the_id_of_its_message,
                a_request_can_be_accepted_without_its_code,
            ]
            threads: [
                an_empty_inbox_is_empty,
                sessions_are_ordered_by_their_newest_message,
                unread_only_omits_read_sessions,
                history_marks_only_the_messages_it_returns,
                reading_updates_the_senders_receipt,
                paging_with_before_returns_each_message_once,
                only_members_read_a_history,
                reading_ones_own_messages_marks_nothing,
            ]
            log: [
                entries_are_numbered_from_one_without_gaps,
                a_reader_resumes_from_any_cursor,
                the_entries_that_a_verb_returns_are_those_of_the_log,
                pruning_removes_old_events_and_never_mail,
                numbers_are_not_reused_after_pruning,
                listeners_that_are_behind_or_whose_key_was_revoked_are_found,
                a_cursor_beyond_the_end_resumes_at_undelivered_entries,
                the_logs_of_a_household_are_read_as_one,
                a_page_of_a_households_logs_is_bounded_and_fair,
            ]
            races: [
                concurrent_registrations_of_a_name_have_one_winner,
                concurrent_sends_of_one_subject_make_one_session,
                concurrent_requests_make_one_pending_row,
                concurrent_approvals_make_one_connection,
                concurrent_sends_with_one_idempotency_key_send_one_message,
                concurrent_sends_are_numbered_without_gaps,
                times_of_reordered_messages_are_monotonic,
                times_within_a_session_are_monotonic_under_concurrency,
                a_log_has_no_gap_for_a_concurrent_reader,
                an_inbox_is_unchanged_while_its_view_version_is,
                a_history_is_unchanged_while_its_view_version_is,
                a_key_rotation_that_races_a_removal_revives_no_agent,
            ]
            consent: [
                a_rejected_request_can_be_made_again,
                a_revoked_connection_carries_no_mail,
                a_blocked_agent_is_refused_without_learning_of_the_block,
                requests_expire_and_notify_the_requester,
                requests_to_a_deleted_agent_notify_the_requester,
                no_send_succeeds_after_a_revocation_was_answered,
            ]
            household: [
                a_household_is_founded_once_and_its_members_write_without_a_code,
                a_wrong_token_registers_nobody,
                the_person_is_registered_once_with_the_owners_token,
                a_registered_agent_can_join_later,
                revoking_a_machine_removes_its_agents_at_once,
                members_leave_and_are_removed,
                the_list_of_agents_begins_with_the_household,
                adding_a_machine_is_idempotent_under_its_key,
                a_token_says_what_it_gives,
                a_replaced_owners_token_is_invalid,
                who_may_write_to_whom,
                an_agent_that_leaves_a_household_leaves_its_groups,
                mail_to_oneself_is_refused,
                no_send_succeeds_after_a_machine_was_revoked,
            ]
            person: [
                only_the_office_marks_mail_from_the_person,
                metadata_cannot_imitate_the_persons_mark,
                a_preview_keeps_the_mark_beside_long_metadata,
                in_a_group_the_mark_is_for_the_persons_own_household,
                the_mark_reflects_the_time_of_sending,
                the_persons_task_is_marked_for_its_new_assignee,
            ]
            stepping_in: [
                a_paused_agents_mail_arrives_in_order_when_it_is_resumed,
                only_the_person_steps_in_and_only_in_its_household,
                agents_are_resumed_when_their_person_is_deleted,
                an_ended_conversation_accepts_no_mail,
                only_the_owners_person_ends_a_groups_conversation,
                no_send_succeeds_after_a_conversation_was_ended,
                nothing_is_claimed_after_a_pause_was_answered,
                only_a_members_key_is_renewed_and_its_others_are_revoked,
                decisions_on_behalf_of_an_agent_are_logged,
            ]
            household_tasks: [
                a_canceled_task_names_the_person_to_both_sides,
                a_reassigned_task_is_new_mail_with_the_original_text,
                a_task_is_reassigned_only_to_allowed_agents,
                reassignments_of_a_strangers_task_are_limited,
                a_task_ends_once_under_concurrent_moves,
            ]
            wake: [
                a_report_replaces_the_previous_one_and_counts_new_rings,
                a_limited_number_of_client_sessions_is_kept_for_a_day,
                only_the_agent_and_its_person_see_its_wake_up_state,
                an_agent_that_cannot_be_woken_for_its_mail_needs_its_person,
            ]
            directory: [
                the_list_of_agents_shows_only_visible_ones,
                the_list_of_agents_is_paged,
                a_profile_is_patched_and_checked,
                presence_follows_heartbeats,
                a_rotated_key_works_at_once_and_the_old_one_in_its_grace_period,
                a_key_in_its_grace_period_neither_rotates_nor_removes,
                a_key_issued_by_the_operator_revokes_all_others,
                a_deleted_agent_leaves_others_history_readable,
            ]
            receipts: [
                a_receipt_says_queued_then_delivered_then_read,
                a_ring_is_told_to_the_sender_once_and_reads_nothing,
                an_ack_is_atomic,
                a_receipt_for_ones_own_message_names_the_reason,
                messages_are_listed_by_filter_and_page,
                a_claimed_message_has_one_holder_until_its_lease_ends,
                a_lease_is_renewed_only_before_it_ends,
                concurrent_claims_return_each_message_once,
                a_long_range_of_entries_is_marked_as_delivered,
            ]
            tasks: [
                a_task_goes_from_pending_to_completed_with_updates_to_its_owner,
                skipped_states_are_passed_through,
                the_office_rejects_tasks_that_may_not_be_accepted,
                concurrent_accepts_respect_the_quota,
                an_overdue_task_is_reported_to_both_sides_once,
                a_delegated_task_knows_its_chain,
                an_undelivered_task_is_shown_only_to_its_sender,
                open_tasks_end_with_the_connection,
                open_tasks_end_when_an_agent_is_removed,
            ]
            groups: [
                a_groups_mail_reaches_every_other_member_once,
                only_members_who_joined_get_a_groups_mail,
                a_draft_to_several_agents_reaches_all_or_none,
                a_member_gets_no_group_mail_from_senders_outside_its_allow_from,
                members_leave_and_are_removed_and_a_group_changes_its_owner,
                an_agent_named_twice_gets_one_copy,
                a_group_is_not_revealed_by_its_name_in_another_case,
                the_size_of_a_group_is_limited,
                the_number_of_an_agents_groups_is_limited,
            ]
            keeping: [
                a_transcript_keeps_each_line_once_and_checks_access,
                transcript_keys_belong_to_owners_and_lines_have_authors,
                concurrently_appended_lines_are_stored_once,
                lines_without_a_message_id_are_no_duplicates,
                search_finds_only_ones_own_mail,
                mail_of_many_agents_is_indexed_in_one_batch,
                old_read_mail_can_be_removed_and_nothing_else,
                a_round_of_removal_skips_mail_that_must_stay,
                mail_that_is_still_needed_is_not_removed,
                an_export_has_each_message_once,
                the_size_of_a_page_is_counted_as_json,
            ]
            quotas: [
                a_send_at_a_limit_is_refused_and_leaves_nothing,
                removing_read_mail_frees_quota,
                mail_to_several_agents_is_charged_for_each_and_refused_as_a_whole,
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
