//! Helpers of `benches/http/run`: fills a database, measures a start, and holds thousands of sockets open.

#![allow(clippy::print_stdout)]

mod fill;
mod http;
mod sockets;
mod start;

use std::error::Error;

const USAGE: &str = "usage: bench fill DATABASE-URL PAIRS MESSAGES OTHERS | bench start COMMAND… | \
                     bench sockets ADDRESS PID COUNT KEYS-FILE";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["fill", url, pairs, messages, others] => {
            fill::fill(url, pairs.parse()?, messages.parse()?, others.parse()?).await
        }
        ["start", command @ ..] if !command.is_empty() => start::start(command).await,
        ["sockets", address, pid, count, keys] => {
            sockets::sockets(address.parse()?, pid.parse()?, count.parse()?, keys).await
        }
        _ => Err(USAGE.into()),
    }
}
