#!/usr/bin/env bash
# Runs the judges of ZKC_SHARED (default ../shared) against bin/zkcontroller.
#
#   scripts/judges.sh short    # a few minutes: part of make test
#   scripts/judges.sh full     # all traces, peer suite, cases, ctlbench pair
#
# Programs are built into .cache/bin; logs are under .cache/judges. Exit code 1
# if a judge found something.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
form=${1:?short or full}
shared=${ZKC_SHARED:-../shared}
[ -d "$shared/judge" ] || {
  echo "judges: not run, no ZKC_SHARED"
  exit 0
}
shared=$(cd "$shared" && pwd)
go=${GO:-go}
bin=$PWD/.cache/bin
out=$PWD/.cache/judges
jars=${ZKC_JARS:-$PWD/.cache/jars}
ours=$PWD/bin/zkcontroller
port=${ZKC_JUDGE_PORT:-27000}
mkdir -p "$bin" "$out"
failed=()

scripts/jars.sh "$jars" 3.9.1 || exit 1
for judge in judge ctlbench; do
  (cd "$shared/$judge" && $go build -o "$bin/$judge" .) || exit 1
done

verdict() { # NAME CODE LAST-LINES LOG
  echo "--- $1: $([ "$2" = 0 ] && echo ok || echo FAILED), log $4"
  tail -n "$3" "$4" | sed 's/^/    /'
  [ "$2" = 0 ] || failed+=("$1")
}

traces() { # FILE...
  "$bin/judge" check --zk-classpath "$jars/3.9.1/*" --expect-differ "$shared/traces/better.txt" \
    --controller "$ours run --config {config}" --parallel 2 --port-base "$port" --work-dir "$out/judge-work" "$@" >"$out/judge.log" 2>&1
  verdict "judge check, $# traces" $? 5 "$out/judge.log"
}

cases() {
  "$ours" cases run "$shared/cases" >"$out/cases.log" 2>&1
  verdict "cases run" $? 1 "$out/cases.log"
}

peers() { # [LIST-FILE]
  PEER_CACHE=$PWD/.cache/peersuite \
    PEER_CONTROLLER="cmd:$ours run --zookeeper {zk} --broker-id {id} --inter-broker-protocol-version 2.4" \
    "$shared/peersuite/run" -s controller-2.4.1 ${1:+-l "$1"} -o "$out/peers" >"$out/peers.log" 2>&1
  verdict "peer suite controller-2.4.1${1:+, short}" $? 3 "$out/peers.log"
}

# The handed methods that take few seconds and touch topics, deletion, moves and failover.
short_peers() {
  cat >"$out/peers-short.txt" <<'LIST'
[controller-2.4.1]
kafka.admin.AddPartitionsTest#testManualAssignmentOfReplicas
kafka.admin.DeleteTopicTest#testDeleteTopicWithAllAliveReplicas
kafka.admin.DeleteTopicTest#testRecreateTopicAfterDeletion
kafka.admin.ReassignPartitionsClusterTest#shouldMoveSinglePartition
kafka.server.LogDirFailureTest#testReplicaFetcherThreadAfterLogDirFailureOnFollower
LIST
  peers "$out/peers-short.txt"
}

bench() { # pair|run ARGS...
  local how=$1 other
  shift
  local dir=$out/ctlbench # better on tmpfs, where there is one
  [ ! -d /dev/shm ] || dir=/dev/shm/zkcontroller-ctlbench-$port
  export CTLBENCH_ZK_CLASSPATH="$jars/3.9.1/*" CTLBENCH_KAFKA_CLASSPATH="$jars/3.9.1/*"
  other="$ours run --zookeeper {zk} --broker-id {id} --listener PLAINTEXT://127.0.0.1:{port}${flags:-}"
  if [ "$how" = pair ]; then
    "$bin/ctlbench" pair -dir "$dir" -port $((port + 1000)) -o "$out/pair.json" -controller kafka -other "$other" "$@" >"$out/bench.log" 2>&1
  else
    "$bin/ctlbench" run -dir "$dir" -port $((port + 1000)) -o "$out/run.json" -controller "$other" "$@" >"$out/bench.log" 2>&1
  fi
  verdict "ctlbench $how $*" $? 12 "$out/bench.log"
}

case $form in
  short)
    traces "$shared"/traces/{alter-expand-and-shrink,broker-bounce-leader,broker-last-in-isr-dies,delete-replica-dead,elect-znode,failover-standby-takes-over,isr-notification,reassign-api-swap,reassign-old-ibp,reassign-znode-shrink,shutdown-leader,topic-create-by-api}.json
    cases
    short_peers
    bench run -scale 0.02 W1a W3 W4b W6a
    ;;
  full)
    traces "$shared"/traces/*.json
    cases
    peers
    bench pair -zk-warm 200000 -scale 0.1 W1a W1b W2 W3 W4a W4b W5a W6a W7a W7b
    flags=" --inter-broker-protocol-version 2.6"
    bench pair -zk-warm 200000 -scale 0.1 -profile B -ibp 2.6 W6a
    ;;
  *)
    echo "usage: $0 short|full" >&2
    exit 2
    ;;
esac
if [ ${#failed[@]} -gt 0 ]; then
  printf 'judges: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "judges: all passed"
