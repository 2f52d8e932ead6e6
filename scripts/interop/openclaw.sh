# For scripts that need a real OpenClaw: installs it, starts its gateway with a stub model, and cleans up.
# Sets amb, dir, version, work, model, gateway, token, pids; HOME becomes a throwaway.
#
# AMB names the binary (target/debug/amb), OPENCLAW_VERSION the version, OPENCLAW_DIR where npm puts it, KEEP=1 keeps the logs.
amb=$(realpath "${AMB:-target/debug/amb}")
dir=$(realpath -m "${OPENCLAW_DIR:-target/interop/openclaw}")
version=${OPENCLAW_VERSION:-2026.9.6}

mkdir -p "$dir"
if [ ! -x "$dir/node_modules/node/bin/node" ]; then npm install --prefix "$dir" --no-audit --no-fund node@24; fi
# OpenClaw refuses to be installed by an older Node.
export PATH="$dir/node_modules/node/bin:$PATH"
if [ ! -f "$dir/node_modules/openclaw/openclaw.mjs" ]; then
  npm install --prefix "$dir" --no-audit --no-fund "openclaw@$version"
fi

work=$(mktemp -d); pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_true() { # SECONDS COMMAND…
  local end=$((SECONDS + $1)); shift
  until "$@"; do [ $SECONDS -lt $end ] || { echo "timed out: $*" >&2; return 1; }; sleep 0.2; done
}
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
calls() { grep -c "$1" "$work/calls" || true; }

model=$(free_port); gateway=$(free_port); token=interop-$RANDOM$RANDOM
python3 scripts/interop/openclaw_model.py "$model" "$work/calls" & pids+=($!)

# The caller's own mailbox settings must not leak in.
unset MAILBOX_SERVER_URL MAILBOX_API_KEY AMB_DIR AMB_AS AMB_LAYOUT XDG_CONFIG_HOME XDG_DATA_HOME
export HOME="$work/home" OPENCLAW_GATEWAY_URL=http://127.0.0.1:$gateway
mkdir -p "$HOME/.openclaw" "$work/workspace"; touch "$work/calls"
export OPENCLAW_DISABLE_BONJOUR=1 OPENCLAW_EXEC_SHELL_SNAPSHOT=0 OPENCLAW_NO_RESPAWN=1 OPENCLAW_SKIP_CHANNELS=1

write_config() { # what stands in the gateway's part besides the usual, ending in a comma
  cat > "$HOME/.openclaw/openclaw.json" <<JSON
{"gateway":{$1"mode":"local","port":$gateway,"bind":"loopback","auth":{"mode":"token","token":"$token"}},
 "models":{"mode":"replace","providers":{"stub":{"baseUrl":"http://127.0.0.1:$model/v1","apiKey":"x","api":"openai-completions",
  "models":[{"id":"stub-1","name":"Stub 1","reasoning":false,"input":["text"],
   "cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0},"contextWindow":128000,"maxTokens":4096}]}}},
 "agents":{"defaults":{"model":{"primary":"stub/stub-1"},"workspace":"$work/workspace","skipBootstrap":true,
  "heartbeat":{"every":"0m"}}},"tools":{"toolSearch":false}}
JSON
}
is_ready() { curl -sf "http://127.0.0.1:$gateway/readyz" | grep -q '"ready":true'; }
kill_gateway() { kill -9 "$gateway_pid"; wait "$gateway_pid" 2>/dev/null || true; }
is_ready_or_dead() { is_ready || ! kill -0 "$gateway_pid" 2>/dev/null; }
start_gateway() {
  # On a busy machine it exits when its own lease takes more than 5 seconds.
  for _ in 1 2 3 4 5; do
    (cd "$work" && exec node "$dir/node_modules/openclaw/openclaw.mjs" gateway run) >> "$work/gateway.log" 2>&1 &
    gateway_pid=$!; pids+=($gateway_pid)
    until_true 400 is_ready_or_dead || break
    if is_ready; then echo "OpenClaw $version is ready"; return; fi
  done
  tail -30 "$work/gateway.log"; exit 1
}
