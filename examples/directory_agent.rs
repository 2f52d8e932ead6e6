//! An agent on a directory: no server, mail in plain files. Answers its mail in capital letters until it is stopped.
//!
//! ```text
//! cargo run -p amb-examples --example directory_agent -- mailboxes shouter &
//! amb --dir mailboxes register ann
//! amb --dir mailboxes --as ann send shouter 'hello'
//! amb --dir mailboxes --as ann inbox
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use amb_core::Mailbox;
use amb_core::card::Card;
use amb_dir::{DirOffice, DirOptions};
use amb_examples::answer_mail;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(root), Some(name)) = (args.next(), args.next()) else { return Err("say: DIRECTORY NAME".into()) };
    let office = DirOffice::open(root.as_ref(), DirOptions::default())?.mailbox(name.parse()?);
    office.register(Card { description: "answers in capital letters".into(), ..Card::default() }).await?;
    println!("{name} is at {}", office.describe());
    answer_mail(&office, |message| message.text().to_uppercase()).await?;
    Ok(())
}
