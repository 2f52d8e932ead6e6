//! The environment of installed bridges, which a service manager does not pass on.

use super::BridgeEntry;
use crate::failure::Failure;

/// Stored besides the variables that the bridges need: they decide where commands and files are found.
const ALWAYS: [&str; 5] = ["PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "LANG"];

/// The variables and their current values. One that was named on the command line must be set.
pub(super) fn collect(entries: &[BridgeEntry], named: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut all: Vec<(String, String)> = Vec::new();
    let wanted = ALWAYS.into_iter().chain(super::needed_variables(entries)).map(|name| (name, false));
    for (name, is_required) in wanted.chain(named.iter().map(|name| (name.as_str(), true))) {
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(Failure::usage(format!("{name:?} is no name of a variable")));
        }
        if amb_wake::is_secret(name.as_ref()) {
            return Err(Failure::usage(format!("{name} opens one session of a client and is never kept")));
        }
        match std::env::var(name) {
            Ok(value) if value.contains(['\n', '\0']) => {
                return Err(Failure::usage(format!("{name} has more than one line and cannot be kept")));
            }
            Ok(value) if !all.iter().any(|(known, _)| known == name) => all.push((name.to_owned(), value)),
            Err(_) if is_required => return Err(Failure::usage(format!("--env {name}: there is no such variable"))),
            _ => {}
        }
    }
    Ok(all)
}

/// In a form that systemd and a shell both read. Hidden values are for display.
pub(super) fn render(variables: &[(String, String)], is_hidden: bool) -> String {
    let shown = |value: &str| if is_hidden { "•••".to_owned() } else { quoted(value) };
    variables.iter().map(|(name, value)| format!("{name}={}\n", shown(value))).collect()
}

fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '`' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_values_and_the_display_hides_them() {
        let value = r#"a b'c"d\e$HOME`id`#f"#;
        let variables = vec![("KEY".to_owned(), value.to_owned())];
        assert_eq!(render(&variables, true), "KEY=•••\n");
        let script = format!("{}printf %s \"$KEY\"", render(&variables, false));
        let read = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(read.stdout).unwrap(), value);
    }
}
