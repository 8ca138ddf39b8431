#!/usr/bin/env bash
# Measures this controller against Kafka 3.9.1's with the performance judge:
#
#   bench/pair.sh [WORKLOAD...]
#
# SCALE, ROUNDS, PORT, OUT, FLAGS, JUDGE_FLAGS, ZKC_JARS, ZKC_SHARED: see bench/README.md.
# Exit codes: the judge's; 2 no judge.
set -euo pipefail
cd "$(dirname "$0")/.."
shared=${ZKC_SHARED:-../shared}
[ -d "$shared/ctlbench" ] || {
  echo "bench: no $shared/ctlbench; name the folder that has it in ZKC_SHARED" >&2
  exit 2
}
go=${GO:-go}
jars=${ZKC_JARS:-$PWD/.cache/jars}
port=${PORT:-28000}
out=${OUT:-out/pair.json}
bin=$PWD/.cache/bin
[ $# -gt 0 ] || set -- W1a W1b W2 W3 W4a W4b W5a W6a W7a W7b

scripts/jars.sh "$jars" 3.9.1
mkdir -p "$bin" "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
(cd "$shared/ctlbench" && "$go" build -o "$bin/ctlbench" .)
CGO_ENABLED=0 "$go" build -trimpath -o bin/zkcontroller ./cmd/zkcontroller
work=$PWD/.cache/ctlbench-$port
[ ! -d /dev/shm ] || work=/dev/shm/zkcontroller-ctlbench-$port
trap 'rm -rf "$work"' EXIT
export CTLBENCH_ZK_CLASSPATH="$jars/3.9.1/*" CTLBENCH_KAFKA_CLASSPATH="$jars/3.9.1/*"
# JUDGE_FLAGS are words on purpose.
# shellcheck disable=SC2086
"$bin/ctlbench" pair -dir "$work" -port "$port" -o "$out" -rounds "${ROUNDS:-3}" -scale "${SCALE:-0.1}" -zk-warm 200000 ${JUDGE_FLAGS:-} \
  -controller kafka -other "$PWD/bin/zkcontroller run --zookeeper {zk} --broker-id {id} --listener PLAINTEXT://127.0.0.1:{port} ${FLAGS:-}" "$@"
echo "bench: results are in $out; '$bin/ctlbench table $out' shows them" >&2
