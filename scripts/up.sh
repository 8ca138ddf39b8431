#!/usr/bin/env bash
# Brings up ZooKeeper, the controller and three emulated brokers on loopback, and
# prints where they are. With Docker and compose: docker-compose.yml. Without: a Java
# child process and bin/zkcontroller, until scripts/down.sh.
#
#   scripts/up.sh            # prefers Docker
#   UP=java scripts/up.sh    # child processes even where Docker is
#
# Exit codes: 0 up; 3 neither Docker nor Java can be used.
set -euo pipefail
cd "$(dirname "$0")/.."
zookeeper=${ZKC_PORT_ZOOKEEPER:-2181}
controller=${ZKC_PORT_CONTROLLER:-19090}
bin=$PWD/bin/zkcontroller
state=$PWD/.cache/up
[ -x "$bin" ] || { echo "up: bin/zkcontroller is missing (make build)" >&2; exit 3; }
# What the docker-compose.yml publishes; the fallback uses the same ports.
brokers="127.0.0.1:${ZKC_PORT_BROKER1:-19091}"

compose() { # docker compose v2, else docker-compose 1.29
  if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi
}

# Waits until the command succeeds.
until_ok() { # WHAT SECONDS COMMAND...
  local what=$1 left=$((10 * $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    if [ $left -le 0 ]; then
      echo "up: $what does not come up; logs are in $state" >&2
      return 1
    fi
    sleep 0.1
  done
}

registered() { # all three brokers
  local n
  for n in 1 2 3; do
    "$bin" status --health --broker $n --zookeeper "127.0.0.1:$zookeeper" --timeout 5s || return 1
  done
}

with_docker() {
  local vars
  vars=$(scripts/docker-up.sh) || return 1
  eval "$vars"
  if ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null; then
    echo "up: Docker is there, compose is not (Debian: apt-get install docker-compose)" >&2
    return 1
  fi
  if ! docker image inspect zookeeper:3.9 >/dev/null 2>&1; then
    scripts/jars.sh "${ZKC_JARS:-.cache/jars}" zk-3.9.5 || true # only needed where no registry answers
    mkdir -p "${ZKC_JARS:-.cache/jars}"
    scripts/images.sh "${ZKC_JARS:-.cache/jars}" || return 1
  fi
  compose up --build --detach >&2
}

with_java() {
  local jars=${ZKC_JARS:-$PWD/.cache/jars}
  java -version >/dev/null 2>&1 || { echo "up: no Docker and no Java; install one of them" >&2; return 1; }
  scripts/jars.sh "$jars" zk-3.9.5
  scripts/down.sh
  mkdir -p "$state/zookeeper"
  cat >"$state/zoo.cfg" <<CFG
dataDir=$state/zookeeper
clientPort=$zookeeper
clientPortAddress=127.0.0.1
tickTime=2000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr
CFG
  start() { # NAME COMMAND...
    local name=$1
    shift
    setsid "$@" >"$state/$name.log" 2>&1 </dev/null &
    echo $! >"$state/$name.pid"
  }
  start zookeeper java -Xmx256m -XX:+UseSerialGC -cp "$jars/zk-3.9.5/*" org.apache.zookeeper.server.ZooKeeperServerMain "$state/zoo.cfg"
  until_ok ZooKeeper 60 "$bin" topics list --zookeeper "127.0.0.1:$zookeeper" --timeout 3s
  start controller "$bin" run --zookeeper "127.0.0.1:$zookeeper" --broker-id 1000 --listener "PLAINTEXT://127.0.0.1:$controller"
  until_ok "the controller" 30 "$bin" status --health --zookeeper "127.0.0.1:$zookeeper" --timeout 3s
  # Broker N listens on the first broker's port plus N-1.
  start brokers "$bin" broker --zookeeper "127.0.0.1:$zookeeper" --ids 1-3 --profile 3.9 --port-base $((${brokers##*:} - 1))
}

how=Docker
if [ "${UP:-docker}" = java ] || ! with_docker; then
  how="child processes"
  with_java || exit 3
fi
until_ok "the brokers" 120 registered
cat <<TEXT
up ($how): ZooKeeper 127.0.0.1:$zookeeper, controller 127.0.0.1:$controller, brokers from $brokers
try:  bin/zkcontroller status --zookeeper 127.0.0.1:$zookeeper
      bin/zkcontroller topics create --bootstrap-server $brokers --topic orders --partitions 3 --replication-factor 2
stop: make down
TEXT
