//! Measures the time from the start of a server to its first response.

use std::error::Error;
use std::process::Stdio;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::http::Http;

/// Starts the command, which says `listening on http://ADDRESS`, and prints the milliseconds until it answered that it
/// is ready, and its memory then, in kilobytes. Kills the process.
pub(crate) async fn start(command: &[&str]) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    let line = lines.next_line().await?.ok_or("the server ended")?;
    let address = line.strip_prefix("listening on http://").ok_or("not a server")?.parse()?;
    let status = Http::connect(address).await?.ask("GET /health/ready", "", "").await?;
    let took = started.elapsed();
    if status != 200 {
        return Err(format!("answered {status}").into());
    }
    let pid = child.id().ok_or("the server ended")?;
    println!("{:.1} {}", took.as_secs_f64() * 1e3, memory(pid)?);
    child.kill().await?;
    Ok(())
}

/// The resident memory of a process, in kilobytes.
pub(crate) fn memory(pid: u32) -> Result<u64, Box<dyn Error>> {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
