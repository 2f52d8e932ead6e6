//! What the ledger promises.

use super::*;
use amb_dir::Layout;

fn opened(directory: &Path, layout: Layout) -> CrossingLedger {
    let options = amb_dir::DirOptions { layout: Some(layout), ..Default::default() };
    CrossingLedger::open(directory, DirOffice::open(directory, options).unwrap()).unwrap()
}

fn between(what: NewCrossingKind) -> NewCrossing {
    NewCrossing { sender: "ann".parse().unwrap(), recipient: "ben".parse().unwrap(), what }
}

fn incoming(office_id: u128, task: Option<TaskId>) -> NewCrossing {
    let sent_at = Timestamp::from_second(office_id as i64).unwrap();
    between(NewCrossingKind::In { office_id: Uuid::from_u128(office_id), sent_at, nonce: 7, task })
}

fn outgoing(dir_id: &str, office_id: u128) -> NewCrossing {
    let (dir_id, at) = (dir_id.parse().unwrap(), Timestamp::UNIX_EPOCH);
    between(NewCrossingKind::Out { dir_id, office_id: Uuid::from_u128(office_id), at, task: None })
}

#[tokio::test]
async fn two_messages_of_one_moment_get_two_names() {
    for layout in [Layout::Nanobot, Layout::Chipset] {
        let dir = tempfile::tempdir().unwrap();
        let ledger = opened(dir.path(), layout);
        let same = |office_id| match incoming(office_id, None) {
            NewCrossing { sender, recipient, what: NewCrossingKind::In { office_id, nonce, task, .. } } => {
                let sent_at = Timestamp::UNIX_EPOCH;
                NewCrossing { sender, recipient, what: NewCrossingKind::In { office_id, sent_at, nonce, task } }
            }
            other => other,
        };
        let rows = ledger.begin(vec![same(1), same(2)]).await.unwrap();
        assert_ne!((&rows[0].dir_id, &rows[0].file), (&rows[1].dir_id, &rows[1].file), "{layout}");
    }
}

#[tokio::test]
async fn what_was_begun_comes_back_as_it_was_written_first() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let first = ledger.begin(vec![outgoing("d1", 1), incoming(2, None)]).await.unwrap();
    assert!(first.iter().all(|row| !row.again && row.state == CrossingState::Crossing));
    drop(ledger);
    let ledger = opened(dir.path(), Layout::Nanobot);
    // Another try has other ids for the other side: those that were written down hold.
    let again = ledger.begin(vec![outgoing("d1", 9), incoming(2, None)]).await.unwrap();
    assert!(again.iter().all(|row| row.again));
    assert_eq!(again[0].office_id, Some(Uuid::from_u128(1)));
    assert_eq!((&again[1].dir_id, again[1].at), (&first[1].dir_id, first[1].at));
    assert_eq!(again.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn states_and_cursors_are_kept_together() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let ben: AgentName = "ben".parse().unwrap();
    ledger.begin(vec![outgoing("d1", 1), outgoing("d2", 2)]).await.unwrap();
    ledger
        .settle(Direction::Out, &ben, 70, vec![(1, CrossingState::Across), (2, CrossingState::Waiting)])
        .await
        .unwrap();
    assert_eq!(ledger.cursor(Direction::Out, &ben).await.unwrap(), 70);
    assert_eq!(ledger.cursor(Direction::In, &ben).await.unwrap(), 0);
    let waiting = ledger.rows_in_state(Direction::Out, CrossingState::Waiting, Some(&ben), 0, 9).await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.dir_id.as_str()).collect::<Vec<_>>(), ["d2"]);
    assert_eq!(ledger.waiting().await.unwrap(), 1);
}

#[tokio::test]
async fn a_senders_mail_that_waits_is_found_behind_any_number_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let (ann, ben, zoe): (AgentName, AgentName, AgentName) =
        ("ann".parse().unwrap(), "ben".parse().unwrap(), "zoe".parse().unwrap());
    let mut new: Vec<_> = (0..300).map(|n| outgoing(&format!("d{n}"), n)).collect();
    new.push(NewCrossing { sender: zoe.clone(), ..outgoing("last", 300) });
    let rows = ledger.begin(new).await.unwrap();
    ledger.set_states(rows.iter().map(|row| (row.number, CrossingState::Waiting)).collect()).await.unwrap();
    assert!(ledger.waits(&ben, &ann).await.unwrap() && ledger.waits(&ben, &zoe).await.unwrap());
    assert!(!ledger.waits(&zoe, &ann).await.unwrap());
    ledger.set_states(vec![(rows[300].number, CrossingState::Across)]).await.unwrap();
    assert!(!ledger.waits(&ben, &zoe).await.unwrap());
}

#[tokio::test]
async fn ids_are_found_from_either_side() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let (ann, ben, zoe): (AgentName, AgentName, AgentName) =
        ("ann".parse().unwrap(), "ben".parse().unwrap(), "zoe".parse().unwrap());
    let task = |text: &str| Some(text.parse::<TaskId>().unwrap());
    let row = ledger.begin(vec![incoming(1, task("o"))]).await.unwrap().remove(0);
    let (d1, o1): (MessageId, MessageId) = (row.dir_id, Uuid::from_u128(1).into());
    let of_dir: TaskId = d1.as_str().parse().unwrap();
    assert_eq!(ledger.dir_id(&o1).await.unwrap(), Some(d1.clone()));
    assert_eq!(ledger.office_id(&ben, &d1).await.unwrap(), Some(o1));
    assert_eq!(ledger.office_id(&zoe, &d1).await.unwrap(), None, "another's message");
    assert_eq!(ledger.dir_task(&task("o").unwrap()).await.unwrap(), Some(of_dir.clone()));
    assert_eq!(ledger.office_task(&ann, &ben, &of_dir).await.unwrap(), task("o"));
    assert_eq!(ledger.office_task(&zoe, &ben, &of_dir).await.unwrap(), None);
}

#[tokio::test]
async fn only_what_was_read_and_brought_no_task_can_be_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let task = Some("o".parse::<TaskId>().unwrap());
    let report = between(NewCrossingKind::Report { dir_id: "r1".parse().unwrap(), at: Timestamp::UNIX_EPOCH });
    let rows =
        vec![outgoing("d1", 1), outgoing("d2", 2), incoming(3, task), incoming(4, None), report, outgoing("d3", 5)];
    let rows = ledger.begin(rows).await.unwrap();
    let read = [0, 2, 3, 4, 5].map(|at: usize| (rows[at].number, CrossingState::Read));
    ledger.set_states(read.to_vec()).await.unwrap();
    let found = |rows: Vec<CrossingRow>| rows.iter().map(|row| row.number).collect::<Vec<_>>();
    assert_eq!(found(ledger.read_rows(0, 9).await.unwrap()), [rows[0].number, rows[3].number, rows[4].number]);
    assert_eq!(found(ledger.read_rows(rows[0].number, 1).await.unwrap()), [rows[3].number], "a page after a number");
    ledger.forget(vec![rows[0].number, rows[4].number]).await.unwrap();
    assert_eq!(found(ledger.read_rows(0, 9).await.unwrap()), [rows[3].number]);
    assert!(ledger.by_dir_id(&rows[0].recipient, &rows[0].dir_id).await.unwrap().is_none());
    let next = ledger.begin(vec![outgoing("d9", 9)]).await.unwrap();
    assert!(next[0].number > rows[5].number, "a number is never given twice: {}", next[0].number);
}

#[tokio::test]
async fn whom_a_resident_wrote_to_first_is_known_also_from_before_it_was_noted() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    let (ann, ben, zoe): (AgentName, AgentName, AgentName) =
        ("ann".parse().unwrap(), "ben".parse().unwrap(), "zoe".parse().unwrap());
    let back = |office_id, to: &AgentName| NewCrossing {
        sender: ben.clone(),
        recipient: to.clone(),
        what: incoming(office_id, None).what,
    };
    let out = |dir_id, office_id, from: &AgentName| NewCrossing { sender: from.clone(), ..outgoing(dir_id, office_id) };
    // Ann writes to ben, who answers; ben writes to zoe, who answers.
    let rows = ledger.begin(vec![out("d1", 1, &ann), back(2, &ann), back(3, &zoe), out("d2", 4, &zoe)]).await.unwrap();
    let known = async |ledger: &CrossingLedger| {
        assert!(ledger.is_contact(&ann, &ben).await.unwrap());
        assert!(!ledger.is_contact(&zoe, &ben).await.unwrap(), "zoe has only answered");
        assert_eq!(ledger.contacts(9).await.unwrap(), [(ann.clone(), ben.clone())]);
    };
    known(&ledger).await;
    drop(ledger);
    Connection::open(dir.path().join("ledger.db")).unwrap().execute("DROP TABLE contacts", []).unwrap();
    let ledger = opened(dir.path(), Layout::Nanobot);
    known(&ledger).await;
    // What was refused did not come to zoe: then she is the first.
    ledger.set_states(vec![(rows[2].number, CrossingState::Refused)]).await.unwrap();
    ledger.begin(vec![out("d3", 5, &zoe)]).await.unwrap();
    assert!(ledger.is_contact(&zoe, &ben).await.unwrap());
}
