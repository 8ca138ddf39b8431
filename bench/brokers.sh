#!/usr/bin/env bash
# Compares three of our brokers with three of Kafka 3.9.1's under the same load,
# one after the other on the same machine: each broker a process, records of 1 KiB
# (SIZE), acks=all, 3 replicas, min.insync.replicas=2.
#
#   bench/brokers.sh                       # kafka, ours on disk, ours in memory
#   ROUNDS=3 TIME=20s bench/brokers.sh kafka disk
#
# Both have Apache ZooKeeper 3.9.5 or, with ZOOKEEPER=ours, ours. Kafka has the
# JVM flags of its own scripts and a heap of HEAP (512m). DIR (a temporary folder)
# has the data, PORT (32100) and the next ten are used. For each cluster: what
# bench/load printed, the memory of the three brokers, highest of their life, and
# in the end with each page that they share counted once.
set -euo pipefail
cd "$(dirname "$0")/.."
jars=${ZKC_JARS:-$PWD/.cache/jars}
ours=${ZKC:-$PWD/bin/zkcontroller}
port=${PORT:-32100}
work=$(mktemp -d "${DIR:-/tmp}/brokers-bench-XXXXXX")
pids=()
stop() {
  [ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  pids=()
}
trap 'stop; rm -rf "$work"' EXIT
${GO:-go} build -o "$work/load" ./bench/load

await() { # SECONDS COMMAND...
  local n=$(($1 * 10))
  shift
  while ! "$@" 2>/dev/null; do
    ((n--)) || { echo "not within the time: $*" >&2 && return 1; }
    sleep 0.1
  done
}
open() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }

zookeeper() {
  printf 'tickTime=2000\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n' "$1/zk" "$port" >"$1/zoo.cfg"
  if [ "${ZOOKEEPER:-apache}" = ours ]; then
    "$ours" zookeeper "$1/zoo.cfg" >"$1/zk.log" 2>&1 &
  else
    java -Xmx256m -XX:+UseSerialGC -cp "$jars/zk-3.9.5/*" org.apache.zookeeper.server.ZooKeeperServerMain "$1/zoo.cfg" >"$1/zk.log" 2>&1 &
  fi
  pids+=($!)
  await 30 open "$port"
}

broker() { # KIND ID FOLDER
  local props=$3/b$2.properties
  cat >"$props" <<PROPS
broker.id=$2
listeners=PLAINTEXT://127.0.0.1:$((port + $2))
zookeeper.connect=127.0.0.1:$port
log.dirs=$3/data$2
offsets.topic.replication.factor=3
auto.leader.rebalance.enable=false
PROPS
  case $1 in
    kafka)
      printf 'log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\nlog4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n' >"$3/log4j.properties"
      java "-Xms${HEAP:-512m}" "-Xmx${HEAP:-512m}" -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent \
        "-Dlog4j.configuration=file:$3/log4j.properties" -cp "$jars/3.9.1/*" kafka.Kafka "$props" >"$3/b$2.log" 2>&1 &
      ;;
    disk) "$ours" broker --config "$props" --controller >"$3/b$2.log" 2>&1 & ;;
    memory)
      sed -i '/^log.dirs/d' "$props"
      "$ours" broker --config "$props" --controller >"$3/b$2.log" 2>&1 &
      ;;
  esac
  pids+=($!)
}

cluster() { # KIND ROUND
  local dir=$work/$1-$2 id memory=0 share=0
  mkdir -p "$dir"
  zookeeper "$dir"
  for id in 1 2 3; do broker "$1" "$id" "$dir"; done
  for id in 1 2 3; do await 60 open $((port + id)); done
  sleep 3
  "$work/load" -brokers "127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2)),127.0.0.1:$((port + 3))" -time "${TIME:-15s}" -size "${SIZE:-1024}" \
    -rate "${RATE:-2000}" -compression "${COMPRESSION:-none}" >"$dir/load.json" || { tail -n 5 "$dir"/b*.log >&2; stop; return 1; }
  for id in 1 2 3; do
    memory=$((memory + $(awk '/VmHWM/ {print $2}' "/proc/${pids[id]}/status")))
    share=$((share + $(awk '/^Pss:/ {print $2}' "/proc/${pids[id]}/smaps_rollup")))
  done
  local cpu=0
  for id in 1 2 3; do
    cpu=$((cpu + $(awk '{print $14 + $15}' "/proc/${pids[id]}/stat")))
  done
  stop
  python3 - "$1" "$2" "$((memory / 1024))" "$((share / 1024))" "$((cpu / 100))" "$dir/load.json" <<'PYTHON'
import json, sys
kind, n, memory, share, cpu, file = sys.argv[1:]
r = json.load(open(file))
f, p = r["latency_at_full_speed_ms"], r["latency_at_rate_ms"]
print("%-7s round %s: %8.0f records/s %6.1f MB/s, p50 %.1f p99 %.1f ms | at %.0f/s p50 %.2f p99 %.2f p99.9 %.1f ms | read %.0f MB/s | %s MB at most, %s in the end with what they share counted once, %s CPU s"
      % (kind, n, r["records_per_second"], r["mb_per_second"], f["p50"], f["p99"], r["rate_per_second"], p["p50"], p["p99"], p["p999"], r["read_mb_per_second"], memory, share, cpu))
PYTHON
  rm -rf "$dir"
}

kinds=("$@")
[ $# -gt 0 ] || kinds=(kafka disk memory)
for round in $(seq "${ROUNDS:-1}"); do
  for kind in "${kinds[@]}"; do cluster "$kind" "$round"; done
done
