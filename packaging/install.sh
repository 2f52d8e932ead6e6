#!/bin/sh
# Installs amb from the archives of a release, without root:
#
#   curl -fsSL https://github.com/OWNER/REPOSITORY/releases/latest/download/install.sh | sh
#
# AMB_INSTALL_DIR   where the program goes; ~/.local/bin unless said
# AMB_VERSION       a release such as v0.1.0; the latest unless said
# AMB_RELEASES      where releases are; a mirror, or file:///a/directory for an archive that you have
#
# The archive is checked against the release's SHA256SUMS, and the program is started once before it takes the place of another.
set -eu

# Set when a release is made.
REPOSITORY=OWNER/REPOSITORY

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

fetch() { # URL FILE
  if have curl; then
    # A redirect to something that is not encrypted is not followed, unless the release is a file or on this machine.
    case $1 in
      https://*) curl -fsSL --proto '=https' --tlsv1.2 -o "$2" "$1" ;;
      *) curl -fsSL -o "$2" "$1" ;;
    esac
  elif have wget; then
    wget -q -O "$2" "$1"
  else
    fail 'needs curl or wget'
  fi || fail "cannot fetch $1"
}

sha256() { # FILE
  if have sha256sum; then
    sha256sum "$1"
  elif have shasum; then
    shasum -a 256 "$1"
  elif have openssl; then
    openssl dgst -sha256 -r "$1"
  else
    fail 'needs sha256sum, shasum or openssl to check what it fetched'
  fi | cut -d ' ' -f 1
}

target() {
  case $(uname -s)-$(uname -m) in
    Linux-x86_64 | Linux-amd64) echo x86_64-unknown-linux-gnu ;;
    Linux-aarch64 | Linux-arm64) echo aarch64-unknown-linux-gnu ;;
    Darwin-arm64) echo aarch64-apple-darwin ;;
    *) fail "there is no archive for $(uname -s) on $(uname -m); build it with cargo install --path crates/cli" ;;
  esac
}

# All of it in a function, so that a script that was cut off on its way does nothing.
main() {
  target=$(target)
  case ${AMB_RELEASES:-$REPOSITORY} in
    OWNER/*) fail 'this copy belongs to no release; say where releases are with AMB_RELEASES' ;;
  esac
  releases=${AMB_RELEASES:-https://github.com/$REPOSITORY/releases}
  case $releases in
    file://*) from=$releases ;;
    *) from=$releases/latest/download
       [ -z "${AMB_VERSION:-}" ] || from=$releases/download/$AMB_VERSION ;;
  esac
  into=${AMB_INSTALL_DIR:-${HOME:?}/.local/bin}

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM

  fetch "$from/SHA256SUMS" "$work/SHA256SUMS"
  # One line for each archive: its checksum and its name, which says the version.
  line=$(grep "[ *]amb-[^ /]*-$target\.tar\.gz\$" "$work/SHA256SUMS") || fail "the release has no archive for $target"
  [ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "the release has several archives for $target"
  wanted=${line%% *}
  archive=${line##*[ *]}
  fetch "$from/$archive" "$work/$archive"
  found=$(sha256 "$work/$archive")
  [ "$found" = "$wanted" ] || fail "$archive is not what the release says (sha256 $found instead of $wanted); nothing was installed"

  tar -xzf "$work/$archive" -C "$work"
  program=$work/${archive%.tar.gz}/amb
  version=$("$program" --version) || fail "the program does not run here (an older system, or one with another libc?); nothing was installed"
  mkdir -p "$into"
  # Renamed into place: whoever runs the old one goes on with it.
  cp "$program" "$into/.amb.$$"
  chmod 0755 "$into/.amb.$$"
  mv -f "$into/.amb.$$" "$into/amb"
  printf '%s is installed as %s/amb\n' "$version" "$into"
  case :$PATH: in
    *":$into:"*) ;;
    *) printf "It is not on your PATH; add it: export PATH=\"%s:\$PATH\"\n" "$into" ;;
  esac
}

main
