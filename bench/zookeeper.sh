#!/usr/bin/env bash
# Measures the embedded ZooKeeper beside Apache ZooKeeper, in one run, with the
# judge zkdiff: rates, latencies, memory, start.
#
#   bench/zookeeper.sh                # neither waits for the disk (forceSync=no)
#   FORCESYNC=yes bench/zookeeper.sh  # both do
#   MEM=1000000 AGAINST= TIME=200ms ROUNDS=1 bench/zookeeper.sh   # ours alone, memory of a million znodes
#
# FORCESYNC, AGAINST, ROUNDS, TIME, MEM, PORT, OUT, ZKC_SHARED: see bench/README.md.
# Exit codes: the judge's; 2 no judge.
set -euo pipefail
cd "$(dirname "$0")/.."
shared=${ZKC_SHARED:-../shared}
[ -d "$shared/zkdiff" ] || {
  echo "bench: no $shared/zkdiff; name the folder that has it in ZKC_SHARED" >&2
  exit 2
}
shared=$(cd "$shared" && pwd)
go=${GO:-go}
sync=${FORCESYNC:-no}
against=${AGAINST-3.9.5}
out=${OUT:-out/zookeeper-forcesync-$sync.txt}
bin=$PWD/.cache/bin
mkdir -p "$bin" "$(dirname "$out")"
(cd "$shared/zkdiff" && "$go" build -o "$bin/zkdiff" .)
CGO_ENABLED=0 "$go" build -trimpath -o bin/zkcontroller ./cmd/zkcontroller
# Both are told of forceSync in their own way; Apache's JVM may compile as well as it can.
export ZK_CACHE=$PWD/.cache/zk ZK_FORCESYNC=$sync SERVER_JVMFLAGS=-Dzookeeper.forceSync=$sync ZK_JIT=-XX:+TieredCompilation ZK_HEAP=${ZK_HEAP:-512m}
targets=(-target "ours=$PWD/bin/zkcontroller zookeeper")
[ -z "$against" ] || targets=(-target "apache=$shared/zkdiff/suites/apache.sh $against" "${targets[@]}")
"$bin/zkdiff" perf "${targets[@]}" -port "${PORT:-28480}" -rounds "${ROUNDS:-3}" -time "${TIME:-1500ms}" -mem "${MEM:-100000}" | tee "$out"
