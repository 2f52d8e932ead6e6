//! Which peers an agent may write to.

use serde::{Deserialize, Serialize};

/// Patterns of agent names, each a name or a beginning followed by `*`. No pattern at all means everybody.
///
/// ```
/// use amb_live::AllowedDelegates;
/// let allowed = AllowedDelegates::new(["writer", "research*"]);
/// assert!(allowed.allows("writer") && allowed.allows("researcher-2"));
/// assert!(!allowed.allows("writer-2"));
/// assert!(AllowedDelegates::default().allows("anyone"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllowedDelegates(Vec<String>);

impl AllowedDelegates {
    /// The list as a configuration states it.
    pub fn new<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> Self {
        Self(patterns.into_iter().map(Into::into).collect())
    }

    /// Whether every agent is allowed.
    pub fn allows_everybody(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern == "*")
    }

    /// Whether this agent may be written to.
    pub fn allows(&self, agent: &str) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => agent.starts_with(beginning),
                None => agent == pattern,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trailing_star_is_a_glob() {
        let allowed = AllowedDelegates::new(["a*c", "x*"]);
        assert!(allowed.allows("x") && allowed.allows("xyz"));
        assert!(!allowed.allows("abc") && !allowed.allows("X"));
        assert!(AllowedDelegates::new(["*"]).allows("anyone"));
    }
}
