//! File names for a session key.

use amb_core::transcript::TranscriptKey;
use uuid::Uuid;

/// Extension of transcripts.
pub(super) const EXTENSION: &str = ".jsonl";
/// Longest file name that common file systems accept.
const MAX_NAME_BYTES: usize = 255;
/// Hexadecimal digits of the hash in a name that is not plain. If two keys have the same hash, `.owners` decides.
const HASH_DIGITS: usize = 16;
/// More than collisions ever need; only a crafted directory exhausts them.
pub(super) const MAX_CANDIDATES: usize = 16;

/// Returns the names that `key` may have, without the extension, in the order in which they are tried.
///
/// The plain name comes first, since other programs use it. A key whose plain name would be empty, hidden or too long
/// has only hashed ones.
pub(super) fn candidates(key: &TranscriptKey) -> impl Iterator<Item = String> + '_ {
    let plain = plain(key.as_str());
    let first = usable(&plain).then(|| plain.clone());
    first.into_iter().chain((0..).map(move |round| hashed(key, &plain, round))).take(MAX_CANDIDATES)
}

/// Adds the extension.
pub(super) fn file_name(name: &str) -> String {
    format!("{name}{EXTENSION}")
}

/// nanobot's `safe_filename`: replaces nine characters by `_`, and trims white space.
fn plain(key: &str) -> String {
    let safe: String = key
        .chars()
        .map(|c| if matches!(c, '<' | '>' | ':' | '"' | '/' | '\\' | '|' | '?' | '*') { '_' } else { c })
        .collect();
    safe.trim().to_owned()
}

fn usable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.len() + EXTENSION.len() <= MAX_NAME_BYTES
}

/// Returns as much of the plain name as fits, for people, and a hash of the whole key.
fn hashed(key: &TranscriptKey, plain: &str, round: usize) -> String {
    let seed = format!("{round}:{key}");
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, seed.as_bytes()).simple().to_string();
    let room = MAX_NAME_BYTES - EXTENSION.len() - HASH_DIGITS - 1;
    let mut stem = plain.trim_start_matches('.');
    while stem.len() > room {
        let last = stem.chars().next_back().map_or(1, char::len_utf8);
        stem = &stem[..stem.len() - last];
    }
    let stem = if stem.is_empty() { "transcript" } else { stem };
    format!("{stem}~{}", &hash[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(key: &str) -> Vec<String> {
        candidates(&key.parse().unwrap()).take(2).collect()
    }

    #[test]
    fn the_plain_name_is_the_one_nanobot_uses() {
        assert_eq!(names("feishu:oc_123")[0], "feishu_oc_123");
        assert_eq!(names(" a<>:\"/\\|?*b ")[0], "a_________b");
        assert_eq!(names("群聊:一")[0], "群聊_一");
    }

    #[test]
    fn no_name_leaves_the_directory_or_is_hidden_or_too_long() {
        let long = "é".repeat(255);
        for key in
            ["../x", "..", ".", "/etc/passwd", "a/../../b", ".hidden", "   ", "\\\\host\\x", "~", "-rf", long.as_str()]
        {
            for name in names(key) {
                let file = file_name(&name);
                assert!(file.len() <= 255 && !file.starts_with('.') && !file.contains('/'), "{key} became {file}");
                assert!(!name.is_empty(), "{key} has an empty name");
            }
        }
    }

    #[test]
    fn keys_with_one_plain_name_have_different_second_names() {
        assert_eq!(names("a:b")[0], names("a_b")[0]);
        assert_ne!(names("a:b")[1], names("a_b")[1]);
    }
}
