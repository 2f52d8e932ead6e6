//! `amb completions`: for the shell.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, OfficeArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Print a completion script for a shell
///
/// In bash, zsh and fish it also completes the names of agents and offices, and open tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb completions bash > ~/.local/share/bash-completion/completions/amb
  amb completions zsh > ~/.zfunc/_amb
  amb completions fish > ~/.config/fish/completions/amb.fish")]
pub(crate) struct CompletionsCommand {
    /// Shell to generate the script for
    shell: Shell,
}

impl CompletionsCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, _output: Output) -> Result<(), Failure> {
        Ok(std::io::stdout().lock().write_all(script(self.shell).as_bytes())?)
    }
}

/// The generated script, with calls of `amb complete` where names are completed.
fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "amb", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + BASH,
        Shell::Fish => script + FISH,
        Shell::Zsh => zsh(&script),
        _ => script,
    }
}

const BASH: &str = r#"
_amb_with_names() {
    _amb "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" what=""
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        send|chat|read|connect|reject|revoke|block|unblock|--from|--agent|--to) what=agents ;;
        --as) what=mine ;;
        accept|start|done|fail) what=tasks ;;
        use|--office) what=offices ;;
    esac
    if [ -n "$what" ] && [[ "$cur" != -* ]]; then
        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" complete "$what" 2>/dev/null)" -- "$cur"))
    fi
}
complete -F _amb_with_names -o bashdefault -o default amb
"#;

const FISH: &str = r#"
complete -c amb -n "__fish_seen_subcommand_from send chat read connect reject revoke block unblock" -f -a "(amb complete agents 2>/dev/null)"
complete -c amb -n "__fish_seen_subcommand_from accept start done fail" -f -a "(amb complete tasks 2>/dev/null)"
complete -c amb -n "__fish_seen_subcommand_from office" -f -a "(amb complete offices 2>/dev/null)"
complete -c amb -l as -x -a "(amb complete mine 2>/dev/null)"
complete -c amb -l office -x -a "(amb complete offices 2>/dev/null)"
"#;

const ZSH: &str = r#"
_amb_names() { local -a names; names=(${(f)"$(amb complete $1 2>/dev/null)"}); compadd -a names }
_amb_agents() { _amb_names agents }
_amb_mine() { _amb_names mine }
_amb_tasks() { _amb_names tasks }
_amb_offices() { _amb_names offices }
"#;

/// Inserts our functions where the generated script accepts anything.
fn zsh(script: &str) -> String {
    let mut lines = Vec::new();
    for line in script.lines() {
        let words = line.trim_start().trim_start_matches(['\'', ':']);
        let function = match words {
            _ if ["to -- ", "agent -- "].iter().any(|arg| words.starts_with(arg)) => "_amb_agents",
            _ if words.starts_with("session -- ") => "_amb_agents",
            _ if words.starts_with("id -- ") => "_amb_tasks",
            _ if words.starts_with("--as=") => "_amb_mine",
            _ if words.starts_with("--office=") => "_amb_offices",
            _ => "",
        };
        lines.push(match function {
            "" => line.to_owned(),
            function => line.replace(":_default'", &format!(":{function}'")),
        });
    }
    let (first, rest) = lines.split_first().map_or(("", [].as_slice()), |(first, rest)| (first.as_str(), rest));
    format!("{first}\n{ZSH}\n{}\n", rest.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_ask_for_the_names_of_agents() {
        assert!(script(Shell::Bash).contains("complete -F _amb_with_names"));
        assert!(script(Shell::Fish).contains("(amb complete agents"));
        let zsh = script(Shell::Zsh);
        assert!(zsh.starts_with("#compdef amb\n"), "{}", &zsh[..80]);
        assert!(zsh.contains(":_amb_agents'") && zsh.contains(":_amb_mine'") && zsh.contains("_amb_agents() {"));
    }
}
