//! The text of a systemd unit and of a launchd property list.

use std::path::{Path, PathBuf};

use super::Manager;

/// An installed service that runs the bridges of one file.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) manager: Manager,
    /// This program.
    pub(super) program: PathBuf,
    /// The file that names the bridges.
    pub(super) file: PathBuf,
    /// The unit or property list.
    pub(super) place: PathBuf,
    /// The file with the environment.
    pub(super) environment: PathBuf,
}

impl Service {
    pub(super) fn text(&self) -> String {
        match self.manager {
            Manager::Systemd => self.unit(),
            Manager::Launchd => self.property_list(),
        }
    }

    fn unit(&self) -> String {
        let (program, file) = (word(&self.program), word(&self.file));
        let environment = specifier(&self.environment.display().to_string());
        let shown = specifier(&self.file.display().to_string());
        format!(
            "# Written by `amb bridge install`; `--remove` takes it away.\n\
             [Unit]\n\
             Description=Agent Mailbox bridges of {shown}\n\
             # The bridges wait by themselves for what is not there yet.\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=exec\n\
             ExecStart={program} bridge run {file}\n\
             EnvironmentFile={environment}\n\
             Restart=on-failure\n\
             RestartSec=5\n\
             # The bridges first: they give back what they hold, and end what they started.\n\
             KillMode=mixed\n\
             TimeoutStopSec=30\n\
             UMask=0077\n\
             NoNewPrivileges=yes\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n"
        )
    }

    fn property_list(&self) -> String {
        // launchd reads no environment file, and keys do not belong in a property list that everybody can read.
        let script = "set -a; . \"$0\"; set +a; exec \"$@\"";
        let text = |path: &Path| path.display().to_string();
        let words = [
            "/bin/sh",
            "-c",
            script,
            &text(&self.environment),
            &text(&self.program),
            "bridge",
            "run",
            &text(&self.file),
        ];
        let words: String = words.iter().map(|word| format!("    <string>{}</string>\n", xml(word))).collect();
        let label = xml(self.place.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default());
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n\
             <dict>\n  \
             <key>Label</key>\n  <string>{label}</string>\n  \
             <key>ProgramArguments</key>\n  <array>\n{words}  </array>\n  \
             <key>RunAtLoad</key>\n  <true/>\n  \
             <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  \
             <key>Umask</key>\n  <integer>63</integer>\n\
             </dict>\n\
             </plist>\n"
        )
    }

    /// The link by which systemd starts it with the user's session.
    pub(super) fn link(&self) -> Option<PathBuf> {
        let (directory, name) = (self.place.parent()?, self.place.file_name()?);
        (self.manager == Manager::Systemd).then(|| directory.join("default.target.wants").join(name))
    }

    pub(super) fn next_step(&self) -> String {
        match self.manager {
            Manager::Systemd => format!(
                "next: `systemctl --user daemon-reload && systemctl --user restart amb-bridge-{}` starts it now; `loginctl \
                 enable-linger` starts it at boot, before you log in",
                self.name
            ),
            Manager::Launchd => {
                format!(
                    "next: `launchctl bootstrap gui/$(id -u) {}` starts it now, and at each login",
                    self.place.display()
                )
            }
        }
    }

    pub(super) fn last_step(&self) -> String {
        match self.manager {
            Manager::Systemd => format!("next: `systemctl --user stop amb-bridge-{}` ends what still runs", self.name),
            Manager::Launchd => {
                let label = self.place.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                format!("next: `launchctl bootout gui/$(id -u)/{label}` ends what still runs")
            }
        }
    }
}

/// An argument of a command line in a unit.
fn word(path: &Path) -> String {
    let text = specifier(&path.display().to_string()).replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$");
    format!("\"{text}\"")
}

/// Escapes percent signs, which begin a specifier.
fn specifier(text: &str) -> String {
    text.replace('%', "%%")
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(manager: Manager) -> Service {
        Service {
            name: "team".into(),
            manager,
            program: "/opt/my tools/amb".into(),
            file: "/home/ann/50% $x & \"y\".toml".into(),
            place: "/home/ann/.config/systemd/user/amb-bridge-team.service".into(),
            environment: "/home/ann/.config/amb/bridge-team.env".into(),
        }
    }

    #[test]
    fn a_path_cannot_become_a_specifier_a_variable_or_an_element() {
        let unit = service(Manager::Systemd).text();
        assert!(
            unit.contains(r#"ExecStart="/opt/my tools/amb" bridge run "/home/ann/50%% $$x & \"y\".toml""#),
            "{unit}"
        );
        assert!(unit.contains("EnvironmentFile=/home/ann/.config/amb/bridge-team.env\n"), "{unit}");
        let list = service(Manager::Launchd).text();
        assert!(list.contains("<string>/home/ann/50% $x &amp; \"y\".toml</string>"), "{list}");
        assert!(list.contains("<string>agent-mailbox") || list.contains("<string>amb-bridge-team</string>"), "{list}");
    }
}
