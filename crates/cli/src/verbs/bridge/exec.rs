//! `amb bridge exec`: runs a command for each message.

use std::sync::Arc;

use amb_bridge::exec::{self, Exec, Input};
use amb_bridge::{BridgeOptions, Runtime, TaskHandling};

use super::{BridgeArgs, MAX_TURN_SECONDS, state};
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben bridge exec -- tr a-z A-Z
  amb --as ben bridge exec --input prompt --env ANTHROPIC_API_KEY -- claude -p
  amb --as ben bridge exec --input prompt --env OPENAI_API_KEY -- codex exec -
  amb --as ben bridge exec --input json -- ./handle.py

The output of the command is the reply; empty output sends none. An exit code other than 0 is a
failure: the message is retried, and given up after --max-failures failures. The environment of
the command has AMB_FROM, AMB_TO, AMB_SUBJECT, AMB_MESSAGE_ID, AMB_SESSION_ID, AMB_KIND,
AMB_PRIORITY and AMB_TASK_ID. From your environment it inherits only PATH, HOME, USER, LOGNAME,
SHELL, TERM, NO_COLOR, LANG, LANGUAGE, LC_*, TZ, TMPDIR and XDG_*, and the variables that
--env names.")]
pub(super) struct ExecArgs {
    /// What to write to the command's stdin: text, prompt (the text marked as untrusted, for models) or json
    #[arg(long, default_value = "text", value_parser = input)]
    input: Input,
    /// Pass this variable of your environment to the command, or set one with NAME=VALUE; repeatable
    #[arg(long = "env", value_name = "NAME")]
    environment: Vec<String>,
    /// Kill the command, and all processes that it started, after this long
    #[arg(long, value_name = "SECONDS", default_value_t = exec::DEFAULT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=MAX_TURN_SECONDS))]
    turn_timeout: u64,
    #[command(flatten)]
    common: BridgeArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

fn input(text: &str) -> Result<Input, String> {
    match text {
        "text" => Ok(Input::Text),
        "prompt" => Ok(Input::Prompt),
        "json" => Ok(Input::Json),
        _ => Err("the input is text, prompt or json".into()),
    }
}

impl ExecArgs {
    pub(super) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let is_model = self.input == Input::Prompt;
        let options = BridgeOptions {
            // Connection requests are for models; another program would take them for messages.
            requests: is_model.then(|| "requests".to_owned()),
            ..self.common.options(self.turn_timeout, if is_model { TaskHandling::Ask } else { TaskHandling::Accept })
        };
        let inherited = state::inherited(&self.environment)?;
        let mut runtime = Exec { command: self.command, input: self.input, environment: inherited, records: None };
        runtime.check().await.map_err(|error| Failure::usage(error.detail))?;
        let bridge = self.common.open(office).await?;
        runtime.records = Some(bridge.ledger.commands());
        state::add_account(&mut runtime.environment, office, bridge.mailbox.me(), output)?;
        bridge.run(Arc::new(runtime), options, output).await
    }
}
