//! Programs in Python that follow only the two descriptions share mailboxes with this office.

use std::path::Path;
use std::process::Command;

use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{Draft, Mailbox, Status, TaskState};
use amb_dir::Layout;

use crate::world::{World, name, text};

/// nanobot: a registry, an inbox of files, handled ones moved.
const NANOBOT: &str = r#"
import json, os, pathlib, sys, time
from datetime import datetime, timezone
root, verb, me, *rest = sys.argv[1:]
root = pathlib.Path(root)

def put(path, value, **how):
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, ensure_ascii=False, **how), encoding="utf-8")
    os.rename(temporary, path)

def stamp():
    return datetime.now(timezone.utc).isoformat()

def register():
    for part in ("inbox", "processed"):
        (root / me / part).mkdir(parents=True, exist_ok=True)
    path = root / "_registry.json"
    everybody = json.loads(path.read_text()) if path.exists() else {}
    everybody[me] = {"agent_id": me, "description": "in Python", "capabilities": [], "status": "idle",
        "allow_from": ["*"], "max_concurrent_tasks": 3, "current_tasks": [], "registered_at": stamp(), "last_heartbeat": stamp()}
    put(path, everybody, indent=2)

def send(to, kind, text, more):
    now = time.time()
    message = {"id": f"msg_{int(now)}_{me}", "from": me, "to": to, "timestamp": stamp(), "type": kind, "ttl": 3, "trace": [me],
        "content": {"parts": [{"type": "text", "text": text}]}, "reply_to": None, "metadata": {}, **json.loads(more)}
    put(root / to / "inbox" / f"{int(now)}_{me}.msg.json", message)

def poll():
    for path in sorted((root / me / "inbox").glob("*.msg.json")):
        message = json.loads(path.read_text(encoding="utf-8"))
        words = " ".join(p["text"] for p in message["content"]["parts"] if p["type"] == "text")
        print(json.dumps([message["from"], message["type"], words, message["ttl"], message["trace"], message.get("task")]))
        os.rename(path, root / me / "processed" / path.name)

def who():
    print(json.dumps({n: e["status"] for n, e in json.loads((root / "_registry.json").read_text()).items()}))

{"register": register, "send": send, "poll": poll, "who": who}[verb](*rest)
"#;

/// The chipset: one file per message, marked in place.
const CHIPSET: &str = r#"
import json, os, pathlib, sys
from datetime import datetime, timezone
root, verb, me, *rest = sys.argv[1:]
root = pathlib.Path(root)

def put(path, value):
    temporary = path.parent / ".msg.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, sort_keys=True, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)

def send(to, subject, body, priority):
    stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    box = root / to
    box.mkdir(parents=True, exist_ok=True)
    put(box / (stamp.replace(":", "-") + f"-{me}.json"), {"from": me, "to": to, "type": "coordination", "subject": subject,
        "body": body, "timestamp": stamp, "read": False, "priority": priority})

def check():
    for path in sorted((root / me).glob("*.json")):
        mail = json.loads(path.read_text(encoding="utf-8"))
        if not mail["read"]:
            print(json.dumps([mail["from"], mail["type"], mail["subject"], mail["body"], mail["priority"], list(mail) == sorted(mail)]))
            mail["read"] = True
            put(path, mail)

{"send": send, "check": check}[verb](*rest)
"#;

/// Runs a program; `None` without Python.
fn python(program: &str, root: &Path, words: &[&str]) -> Option<Vec<serde_json::Value>> {
    let output = match Command::new("python3").arg("-c").arg(program).arg(root).args(words).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: no python3 here ({error})");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[tokio::test]
async fn nanobot_in_python_and_we_write_to_each_other() {
    let world = World::new(Layout::Nanobot);
    let Some(_) = python(NANOBOT, world.path(), &["register", "snake"]) else { return };
    let run = |words: &[&str]| python(NANOBOT, world.path(), words).unwrap();
    let crab = world.agent("crab").await;
    let agents = crab.agents().await.unwrap();
    let snake = agents.iter().find(|agent| agent.name == name("snake")).unwrap();
    assert_eq!((snake.card.description.as_str(), snake.presence.status), ("in Python", Status::Idle));
    assert_eq!(run(&["who", "snake"])[0], serde_json::json!({"snake": "idle", "crab": "idle"}));

    crab.send(text("snake", "grüße 你好 🦀")).await.unwrap();
    crab.send(Draft::task(name("snake"), "Work", "count to ten")).await.unwrap();
    let heard = run(&["poll", "snake"]);
    assert_eq!(heard[0], serde_json::json!(["crab", "message", "grüße 你好 🦀", 2, ["crab"], null]));
    assert_eq!((&heard[1][1], &heard[1][2]), (&"task".into(), &"count to ten".into()));
    let id = heard[1][5]["id"].as_str().unwrap();
    assert_eq!(heard[1][5]["state"], "pending");

    let update = serde_json::json!({"task": {"id": id, "state": "completed"}}).to_string();
    run(&["send", "snake", "crab", "task_update", "ten", &update]);
    let update = crab.claim(ClaimRequest { limit: 9, ..Default::default() }).await.unwrap().remove(0);
    assert_eq!((update.text().as_str(), update.task.unwrap().state), ("ten", TaskState::Completed));
    let tasks = crab.tasks(Default::default()).await.unwrap();
    assert_eq!(
        (tasks[0].state, tasks[0].note.as_deref()),
        (TaskState::Completed, Some("ten")),
        "its word is taken over"
    );
    crab.ack(&[update.id]).await.unwrap();

    let task = serde_json::json!({"task": {"id": "t-snake", "state": "pending"}}).to_string();
    run(&["send", "snake", "crab", "task", "walk sideways", &task]);
    let given = crab.tasks(Default::default()).await.unwrap();
    assert_eq!((given[0].id.as_str(), given[0].owner.as_str()), ("t-snake", "snake"));
    crab.set_task_state(&given[0].id, TaskState::Completed, Some("walked".into())).await.unwrap();
    let heard = run(&["poll", "snake"]);
    let states: Vec<_> =
        heard.iter().map(|message| (message[1].clone(), message[5]["state"].clone(), message[2].clone())).collect();
    assert_eq!(states, [("task_update".into(), "completed".into(), "walked".into())]);
    // Their next heartbeat rewrites the registry without a lock; after ours we are still in it.
    run(&["register", "snake"]);
    crab.leave().await.unwrap();
    assert_eq!(run(&["who", "snake"])[0], serde_json::json!({"snake": "idle", "crab": "offline"}));
}

#[tokio::test]
async fn the_chipset_in_python_and_we_write_to_each_other() {
    let world = World::new(Layout::Chipset);
    let Some(_) = python(CHIPSET, world.path(), &["send", "mayor", "polecat", "Bead gt-1", "do it", "urgent"]) else {
        return;
    };
    let run = |words: &[&str]| python(CHIPSET, world.path(), words).unwrap();
    let office = amb_dir::DirOffice::open(world.path(), Default::default()).unwrap();
    assert_eq!(office.layout(), Layout::Chipset, "told from what is there");
    let polecat = office.mailbox(name("polecat"));
    let inbox = polecat.inbox(true).await.unwrap();
    assert_eq!((inbox.sessions[0].subject.as_str(), inbox.unread()), ("Bead gt-1", 1));
    let session = inbox.sessions[0].session_id.clone();
    polecat.read(&session, HistoryPage::default()).await.unwrap();
    assert!(run(&["check", "polecat"]).is_empty(), "they see that it was read");
    let report = Draft {
        kind: "completion_report".parse().unwrap(),
        session: Some(session.clone()),
        ..Draft::text(name("mayor"), "Bead gt-1", "done")
    };
    polecat.send(report).await.unwrap();
    let heard = run(&["check", "mayor"]);
    assert_eq!(heard, [serde_json::json!(["polecat", "completion_report", "Bead gt-1", "done", "normal", true])]);
    let history = polecat.read(&session, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(
        history.messages.iter().map(|m| (m.content.as_str(), m.is_read)).collect::<Vec<_>>(),
        [("done", true), ("do it", true)]
    );
}
