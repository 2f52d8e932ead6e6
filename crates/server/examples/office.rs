//! The network office without rate limits and long waits, for benchmarks and for tools that try every request.
//!
//! `cargo run -p amb-server --example office -- 127.0.0.1:8000 sqlite:mail.db`
//!
//! With a third argument it creates a household if there is none, and writes its owner's token to that file.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use amb_server::{Config, HouseholdToken, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(database)) = (args.next(), args.next()) else {
        return Err("usage: office ADDRESS DATABASE-URL".into());
    };
    let store = amb_store::open(&database).await?;
    if let Some(file) = args.next() {
        let token = HouseholdToken::fresh()?;
        if store.found_household(token.hash(), true, amb_core::Timestamp::now()).await?.is_some() {
            fs_err::write(file, token.reveal())?;
        }
    }
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let config = Config {
        rate_limits: None,
        max_pending: u32::MAX,
        max_wait: Duration::from_secs(1),
        owner_is_operator: true,
        ..Config::default()
    };
    let stop = async {
        // Without a handler the process exits at once, which is fine too.
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, store.clone(), config, stop).await?;
    store.close().await;
    Ok(())
}
