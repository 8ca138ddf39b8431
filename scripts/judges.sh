#!/usr/bin/env bash
# Runs the judges of ZKC_SHARED (default ../shared) against bin/zkcontroller.
#
#   scripts/judges.sh short            # a few minutes: part of make test
#   scripts/judges.sh full             # all traces, all handed tests, both speed comparisons
#   scripts/judges.sh short lin kazoo  # these alone
#
# Of the controller: traces cases peers bench. Of the embedded ZooKeeper: zkdiff
# gozk kazoo kafka zkpeers lin perf, and zktraces, the controller's traces on it.
# Of the brokers: isr, timelines of real brokers (scripts/isr.sh); kgo and
# kafkapython, the clients' own suites over dev (scripts/clients-baseline.txt).
# The word beside runs gozk, kazoo, lin, zkdiff and isr side by side: they mostly sleep.
#
# Programs are built into .cache/bin, what judges download goes to .cache/zk and
# .cache/peersuite, logs are under .cache/judges. Ports from ZKC_JUDGE_PORT
# (27000) on. Exit code 1 if a judge found something.
# shellcheck disable=SC2317 # judges are called by name
set -uo pipefail
cd "$(dirname "$0")/.." || exit
form=${1:?short or full}
shift
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
zookeeper="$ours zookeeper" # a server command: it takes a zoo.cfg
port=${ZKC_JUDGE_PORT:-27000}
export ZK_CACHE=$PWD/.cache/zk PEER_CACHE=$PWD/.cache/peersuite
mkdir -p "$bin" "$out" "$ZK_CACHE"

build() { # PROGRAM...
  local judge
  for judge in "$@"; do
    (cd "$shared/$judge" && $go build -o "$bin/$judge" .) || exit 1
  done
}

verdict() { # NAME CODE LAST-LINES LOG
  echo "--- $1: $([ "$2" = 0 ] && echo ok || echo FAILED), log $4"
  tail -n "$3" "$4" | sed 's/^/    /'
  return "$2"
}

# The handed traces that touch everything a controller does, in short form.
quick_traces="alter-expand-and-shrink broker-bounce-leader broker-last-in-isr-dies delete-replica-dead elect-znode failover-standby-takes-over
  isr-notification reassign-api-swap reassign-old-ibp reassign-znode-shrink shutdown-leader topic-create-by-api"

tracefiles() { # all, or those of the short form
  local name
  if [ "$form" = full ]; then
    echo "$shared"/traces/*.json
  else
    for name in $quick_traces; do echo "$shared/traces/$name.json"; done
  fi
}

check_traces() { # LOG-NAME PORT ZOOKEEPER-FLAG ZOOKEEPER
  local files
  mapfile -t files < <(tracefiles | tr ' ' '\n')
  "$bin/judge" check "$3" "$4" --expect-differ "$shared/traces/better.txt" --controller "$ours run --config {config}" \
    --parallel 2 --port-base "$2" --work-dir "$out/$1-work" "${files[@]}" >"$out/$1.log" 2>&1
  verdict "judge check, ${#files[@]} traces, $1" $? 5 "$out/$1.log"
}

traces() {
  build judge
  scripts/jars.sh "$jars" 3.9.1 || return
  check_traces traces-apache "$port" --zk-classpath "$jars/3.9.1/*"
}

zktraces() {
  build judge
  check_traces traces-embedded $((port + 200)) --zk-command "$zookeeper --listen 127.0.0.1:{port} --data-dir {dir}"
}

cases() {
  "$ours" cases run "$shared/cases" >"$out/cases.log" 2>&1
  verdict "cases run" $? 1 "$out/cases.log"
}

# peersuite runs all handed tests of a suite, in short form those of scripts/peers-short.txt.
peersuite() { # SUITE
  local list=()
  [ "$form" = full ] || list=(-l scripts/peers-short.txt)
  "$shared/peersuite/run" -s "$1" "${list[@]}" -o "$out/$1" >"$out/$1.log" 2>&1
  verdict "peer suite $1${list:+, short}" $? 3 "$out/$1.log"
}

peers() {
  PEER_CONTROLLER="cmd:$ours run --zookeeper {zk} --broker-id {id} --inter-broker-protocol-version 2.4" peersuite controller-2.4.1
}

zkpeers() {
  PEER_ZK="cmd:$zookeeper --listen 127.0.0.1:{port} --data-dir {dir}" peersuite zookeeper-3.9.1
}

ctlbench() { # pair|run ARGS...
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

bench() {
  build ctlbench
  scripts/jars.sh "$jars" 3.9.1 || return
  if [ "$form" = short ]; then
    ctlbench run -scale 0.02 W1a W3 W4b W6a
    return
  fi
  local code=0
  ctlbench pair -zk-warm 200000 -scale 0.1 W1a W1b W2 W3 W4a W4b W5a W6a W7a W7b || code=1
  flags=" --inter-broker-protocol-version 2.6" ctlbench pair -zk-warm 200000 -scale 0.1 -profile B -ibp 2.6 W6a || code=1
  return "$code"
}

zkdiff() {
  build zkdiff
  local dir at=127.0.0.1:$((port + 400)) pid code=1
  dir=$(mktemp -d)
  cat >"$dir/zoo.cfg" <<CFG
tickTime=500
dataDir=$dir/data
clientPort=${at#*:}
clientPortAddress=127.0.0.1
maxClientCnxns=0
4lw.commands.whitelist=*
admin.enableServer=false
extendedTypesEnabled=true
DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=
CFG
  SERVER_JVMFLAGS=-Dznode.container.checkIntervalMs=500 $zookeeper "$dir/zoo.cfg" >"$out/zkdiff-server.log" 2>&1 &
  pid=$!
  if serves "$at" "$pid"; then
    (cd "$shared/zkdiff" && "$bin/zkdiff" check -server "$at") >"$out/zkdiff.log" 2>&1
    code=$?
  else
    { echo "the server does not serve:"; tail -5 "$out/zkdiff-server.log"; } >"$out/zkdiff.log"
  fi
  kill "$pid" 2>/dev/null
  wait "$pid"
  rm -rf "$dir"
  grep -A 12 '^FAIL' "$out/zkdiff.log" | head -60
  verdict "zkdiff check" "$code" 1 "$out/zkdiff.log"
}

serves() { # HOST:PORT PID: waits until srvr shows a Mode
  local tries
  for ((tries = 0; tries < 400; tries++)); do
    if (exec 3<>"/dev/tcp/${1%:*}/${1#*:}" && printf srvr >&3 && timeout 2 cat <&3) 2>/dev/null | grep -q 'Mode: '; then
      return 0
    fi
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

gozk() {
  "$shared/zkdiff/suites/go-zookeeper.sh" "$ours" zookeeper >"$out/gozk.log" 2>&1
  local code=$?
  grep '^fail' "$out/gozk.log"
  verdict "go-zookeeper's own tests" "$code" 1 "$out/gozk.log"
}

# kazoo's verdict is read off its report: clients that tests left open print
# behind the summary that the suite's script looks at, on Apache's server, too.
# Of test_rw_lock, which waits for ever if the second of its two threads happens
# to come first, each try has a minute, and one of five has to pass.
kazoo() {
  local plain='not test_update_host_list and not Reconfig and not ReadOnlyMode and not SSL and not ssl and not TestLegacySASL and not TestSASLDigest and not GSSAPI'
  local code=0 try
  rm -f "$out/kazoo.xml"
  # CI unset: one test compares the version with that of the real server kazoo's own CI installs.
  K="$plain and not test_rw_lock" OUT=$out/kazoo.xml PORT=$((port + 450)) timeout -k 5 900 env -u CI "$shared/zkdiff/suites/kazoo.sh" "$ours" zookeeper >"$out/kazoo.log" 2>&1
  python3 - "$out/kazoo.xml" >>"$out/kazoo.log" <<'PYTHON' || code=1
import sys, xml.etree.ElementTree as tree
try:
    a = next(tree.parse(sys.argv[1]).getroot().iter("testsuite")).attrib
except OSError:
    sys.exit("kazoo 2.10.0: did not come to its end within 15 minutes")
bad = int(a["failures"]) + int(a["errors"])
print("kazoo 2.10.0: %d passed, %d failed, %s skipped in %s s" % (int(a["tests"]) - bad - int(a["skipped"]), bad, a["skipped"], a["time"]))
sys.exit(bad > 0)
PYTHON
  for try in 1 2 3 4 5; do
    K=test_rw_lock OUT=$out/kazoo-rw.xml PORT=$((port + 460)) timeout -k 5 60 env -u CI "$shared/zkdiff/suites/kazoo.sh" "$ours" zookeeper >"$out/kazoo-rw.log" 2>&1 && break
  done
  if ! grep -q ' passed' "$out/kazoo-rw.log"; then
    code=1
    echo "test_rw_lock failed $try times" >>"$out/kazoo.log"
  fi
  grep -E '^(FAILED|ERROR)|test_rw_lock failed' "$out/kazoo.log"
  verdict "kazoo's own tests" "$code" 1 "$out/kazoo.log"
}

kafka() {
  local class code=0
  for class in kafka.zookeeper.ZooKeeperClientTest kafka.zk.KafkaZkClientTest; do
    CLASSES=$class "$shared/zkdiff/suites/kafka.sh" "$ours" zookeeper >"$out/${class##*.}.log" 2>&1
    verdict "Kafka's ${class##*.}" $? 6 "$out/${class##*.}.log" || code=1
  done
  return "$code"
}

lin() {
  build zkdiff
  local rounds=10
  [ "$form" = short ] || rounds=100
  "$bin/zkdiff" lin -server-cmd "$zookeeper" -port $((port + 490)) -rounds "$rounds" -kills 1 >"$out/lin.log" 2>&1
  verdict "zkdiff lin, $rounds histories" $? 1 "$out/lin.log"
}

# perf compares speed with Apache 3.9.5: without fsync, then with it on both sides.
perf() {
  build zkdiff
  local code=0 how
  for how in no yes; do
    FORCESYNC=$how PORT=$((port + 480)) OUT="$out/perf-forcesync-$how.txt" bench/zookeeper.sh >"$out/perf-$how.log" 2>&1 || code=1
    verdict "zkdiff perf, forceSync=$how" "$code" 16 "$out/perf-$how.log"
  done
  return "$code"
}

# beside runs judges that mostly sleep at the same time; each prints when all are done.
beside() {
  local name pids=() code=0
  build zkdiff
  for name in gozk kazoo lin zkdiff isr; do
    "$name" >"$out/$name.verdict" 2>&1 &
    pids+=($!)
  done
  for name in "${pids[@]}"; do wait "$name" || code=1; done
  cat "$out"/{gozk,kazoo,lin,zkdiff,isr}.verdict
  return "$code"
}

# isr's windows are for an idle machine; beside other judges they end two seconds later.
isr() {
  OUT=$out/isr ISR_PORT=$((port + 600)) ISR_SLACK=${ISR_SLACK:-2000} scripts/isr.sh "$form" >"$out/isr.log" 2>&1
  local code=$?
  grep -v '^ok ' "$out/isr.log" | head -60
  verdict "isrtrace, $form" "$code" 1 "$out/isr.log"
}

# clients runs a client's own suite over three brokers of dev, each time anew.
clients() { # SUITE LOG [-run PATTERN]
  local suite=$1 log=$out/$2
  shift 2
  : >"$log.txt"
  # shellcheck disable=SC2016 # dev gives the brokers' addresses to the shell that it starts
  KGO_TEST_RECORDS=3000 PEER_TIMEOUT=5m PEER_RESULTS=$log.txt timeout 600 "$ours" dev --profile 3.9 -- \
    bash -c 'suite=$1; shift 1; exec "$0" "$suite" "$ZKC_BOOTSTRAP_SERVERS" "$@"' "$shared/peersuite/clients" "$suite" "$@" >"$log.log" 2>&1
}

baseline() { # SECTION: its names
  awk -v section="[$1]" '/^\[/ {on = $0 == section; next} on && NF && !/^#/ {print $1}' scripts/clients-baseline.txt
}

# kgo is right when each test of the baseline passed.
kgo() {
  local missing
  clients kgo kgo -run "^($(baseline kgo | paste -sd '|'))\$"
  missing=$(baseline kgo | grep -vxFf <(sed -nE 's/^--- PASS: ([A-Za-z0-9_]+) .*/\1/p' "$out/kgo.txt") | paste -sd ' ')
  echo "kgo: $(grep -c '^--- PASS' "$out/kgo.txt") of $(baseline kgo | wc -l) passed${missing:+; did not: $missing}" >>"$out/kgo.log"
  verdict "franz-go's own suite" "$([ -z "$missing" ] && echo 0 || echo 1)" 1 "$out/kgo.log"
}

# kafkapython is right when it came to its end and nothing else failed than is said.
kafkapython() {
  local other sum
  clients kafka-python kafka-python
  other=$(sed -nE 's/^(FAILED|ERROR) [^ ]*::([A-Za-z0-9_]+).*/\2/p' "$out/kafka-python.txt" | grep -vxFf <(baseline 'kafka-python may fail') | sort -u | paste -sd ' ')
  sum=$(grep -E '^=+ .* passed.* in ' "$out/kafka-python.txt" | tail -1 | tr -d =)
  [ -n "$sum" ] || other="$other (it did not come to its end)"
  echo "kafka-python:$sum${other:+; failed, though not named in scripts/clients-baseline.txt: $other}" >>"$out/kafka-python.log"
  verdict "kafka-python's own suite" "$([ -z "$other" ] && echo 0 || echo 1)" 1 "$out/kafka-python.log"
}

main() {
  local name failed=()
  if [ $# = 0 ]; then
    case $form in
      short) set -- traces cases peers bench zktraces zkpeers kgo beside ;;
      full) set -- traces cases peers bench zkdiff zktraces zkpeers gozk kazoo kafka lin perf isr kgo kafkapython ;;
    esac
  fi
  for name in "$@"; do
    case $name in
      traces | cases | peers | bench | zkdiff | zktraces | zkpeers | gozk | kazoo | kafka | lin | perf | beside | isr | kgo | kafkapython) ;;
      *)
        echo "judges: no judge is called $name; the head of $0 names them" >&2
        exit 2
        ;;
    esac
    "$name" || failed+=("$name")
  done
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'judges: FAILED: %s\n' "${failed[@]}"
    exit 1
  fi
  echo "judges: all passed"
}

case $form in
  short | full) main "$@" ;;
  *)
    echo "usage: $0 short|full [JUDGE...]" >&2
    exit 2
    ;;
esac
exit
