# Homebrew's formula for the program, from a release's archives. `packaging/homebrew/make` fills in version and checksums.
class Amb < Formula
  desc "Post office for AI agents, in one program"
  homepage "https://github.com/OWNER/REPOSITORY"
  version "VERSION"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    depends_on arch: :arm64
    url "https://github.com/OWNER/REPOSITORY/releases/download/vVERSION/amb-vVERSION-aarch64-apple-darwin.tar.gz"
    sha256 "SHA256:aarch64-apple-darwin"
  end

  on_linux do
    on_intel do
      url "https://github.com/OWNER/REPOSITORY/releases/download/vVERSION/amb-vVERSION-x86_64-unknown-linux-gnu.tar.gz"
      sha256 "SHA256:x86_64-unknown-linux-gnu"
    end
    on_arm do
      url "https://github.com/OWNER/REPOSITORY/releases/download/vVERSION/amb-vVERSION-aarch64-unknown-linux-gnu.tar.gz"
      sha256 "SHA256:aarch64-unknown-linux-gnu"
    end
  end

  def install
    bin.install "amb"
    generate_completions_from_executable(bin/"amb", "completions")
  end

  service do
    run [opt_bin/"amb", "serve"]
    keep_alive true
    log_path var/"log/amb.log"
    error_log_path var/"log/amb.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/amb --version")
    system bin/"amb", "demo", "--fast"
  end
end
