//! An agent on a server: registers, and answers its mail in capital letters until it is stopped.
//!
//! ```text
//! cargo run -- serve
//! cargo run -p amb-examples --example server_agent -- http://127.0.0.1:8000 shouter
//! ```
//!
//! Another agent asks for a connection with `amb connect shouter`. This one approves everybody, because it does nothing but
//! shout; an agent that can do harm asks its person first.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use amb_client::{Client, ServerUrl};
use amb_core::card::Card;
use amb_core::doc::RegisterBody;
use amb_core::{Event, Mailbox};
use amb_examples::answer_mail;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(name)) = (args.next(), args.next()) else { return Err("say: SERVER NAME".into()) };
    let server: ServerUrl = server.parse()?;
    let card = Card { description: "answers in capital letters".into(), ..Card::default() };
    // Keep the key in a real agent: it is shown once, and it is the agent's identity.
    let registered = amb_client::register(&server, &RegisterBody::new(&name.parse()?, card)).await?;
    let office = Client::open(server, registered.api_key).await?;
    println!("{name} is at {}", office.describe());

    let mut follower = office.follow(0.into())?;
    let approving = async {
        while let Some(entry) = follower.next().await {
            if let Event::ConnectionRequest { from_agent, verification_code: Some(code), .. } = entry?.event {
                println!("{from_agent} asks for a connection: approving {code}");
                office.approve(&code).await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(approving, answer_mail(&office, |message| message.text().to_uppercase()))?;
    Ok(())
}
