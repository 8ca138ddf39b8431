#!/usr/bin/env bash
# What very many partitions cost: BROKERS (100) emulated brokers in one process,
# TOPICS (10000) of 10 partitions with REPLICAS (3) replicas, our ZooKeeper and
# controller beside them; then a storm of ISR changes (PAUSE brokers stand still,
# 5; 0 leaves it out). Ports from PORT (32060) on, which are below those that Linux
# gives to clients; the manners are those of
# PROFILE (2.6: leaders announce their changes).
set -euo pipefail
cd "$(dirname "$0")/.."
ours=${ZKC:-$PWD/bin/zkcontroller}
port=${PORT:-32060} brokers=${BROKERS:-100} profile=${PROFILE:-2.6}
work=$(mktemp -d "${DIR:-/tmp}/many-bench-XXXXXX")
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
${GO:-go} build -o "$work/many" ./bench/many
await() { # COMMAND...
  for _ in $(seq 600); do
    "$@" 2>/dev/null && return 0
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "not within a minute: $*" >&2
  tail -n 3 "$work"/*.log >&2
  return 1
}
open() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }

"$ours" zookeeper --listen "127.0.0.1:$port" >"$work/zk.log" 2>&1 &
pids+=($!)
await open "$port"
ZKC_AUTO_LEADER_REBALANCE_ENABLE=false "$ours" run --zookeeper "127.0.0.1:$port" --broker-id 1000 --listener "PLAINTEXT://127.0.0.1:$((port + 1))" \
  --admin "127.0.0.1:$((port + 2))" --inter-broker-protocol-version "$profile" >"$work/controller.log" 2>&1 &
pids+=($!)
await open $((port + 1))
# Broker N listens on port + 2 + N: the ports behind it have to be free.
ZKC_ZOOKEEPER_SESSION_TIMEOUT_MS=60000 "$ours" broker --zookeeper "127.0.0.1:$port" "--records=${RECORDS:-true}" --ids "1-$brokers" --port-base $((port + 2)) --profile "$profile" \
  --admin "127.0.0.1:$((port + 3 + brokers))" >"$work/brokers.log" 2>&1 &
pids+=($!)
await open $((port + 2 + brokers))
sleep 2
"$work/many" -brokers "127.0.0.1:$((port + 3)),127.0.0.1:$((port + 4))" -zookeeper "127.0.0.1:$port" -admin "127.0.0.1:$((port + 3 + brokers))" \
  -metrics "127.0.0.1:$((port + 2))" -pid "${pids[2]}" -topics "${TOPICS:-10000}" -replicas "${REPLICAS:-3}" -pause "${PAUSE:-5}" || {
  tail -n 5 "$work"/*.log >&2
  exit 1
}
