#!/usr/bin/env bash
# Stops what scripts/up.sh started, and forgets its data.
set -euo pipefail
cd "$(dirname "$0")/.."
state=$PWD/.cache/up

# Only our own processes, by the ids that were noted: brokers first, ZooKeeper last.
for name in brokers controller zookeeper; do
  [ -e "$state/$name.pid" ] || continue
  pid=$(cat "$state/$name.pid")
  if kill -TERM "$pid" 2>/dev/null; then
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
done
rm -rf "$state"
if docker info >/dev/null 2>&1 && [ -n "$(docker ps -aq --filter label=com.docker.compose.project.working_dir="$PWD" 2>/dev/null)" ]; then
  if docker compose version >/dev/null 2>&1; then docker compose down --volumes >&2; else docker-compose down --volumes >&2; fi
fi
