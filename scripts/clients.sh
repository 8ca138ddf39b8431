#!/usr/bin/env bash
# Installs a client library of Kafka, pinned, below .cache/clients, and prints the
# command that runs our program for it, one word a line:
#
#   scripts/clients.sh sarama|confluent|kafkajs|java
#
# Exit code 3: what it needs is not there; stderr says what, and the remedy.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/internal/realtests/testdata/clients
cache=$PWD/.cache/clients
mkdir -p "$cache"
needs() { # COMMAND REMEDY
  command -v "$1" >/dev/null || {
    echo "clients: $1 is missing; $2" >&2
    exit 3
  }
}
once() { # DIR COMMAND...: unless it has succeeded before
  local dir=$1
  shift
  [ -e "$dir/.complete" ] || {
    rm -rf "$dir"
    "$@" >"$dir.log" 2>&1 || {
      echo "clients: $* failed, see $dir.log: $(tail -1 "$dir.log")" >&2
      exit 3
    }
    touch "$dir/.complete"
  }
}
venv() { python3 -m venv "$1" && "$1/bin/pip" install -q --disable-pip-version-check "$2"; }

case ${1:-} in
  sarama) # its version is in go.mod
    (cd "$programs/sarama" && ${GO:-go} build -o "$cache/sarama" .)
    echo "$cache/sarama"
    ;;
  confluent)
    needs python3 "install Python 3 with its venv module (Debian: python3-venv)"
    once "$cache/confluent-2.16.1" venv "$cache/confluent-2.16.1" confluent-kafka==2.16.1
    printf '%s\n' "$cache/confluent-2.16.1/bin/python" "$programs/confluent.py"
    ;;
  kafkajs)
    needs npm "install node with npm (Debian: npm)"
    once "$cache/kafkajs-2.2.4" npm install --no-audit --no-fund --silent --prefix "$cache/kafkajs-2.2.4" kafkajs@2.2.4
    printf '%s\n' env "NODE_PATH=$cache/kafkajs-2.2.4/node_modules" node "$programs/kafkajs.js"
    ;;
  java)
    needs java "install a JDK of 11 or later"
    jars=${ZKC_JARS:-$PWD/.cache/jars}
    scripts/jars.sh "$jars" 3.9.1 >&2 || exit 3
    printf '%s\n' java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/3.9.1/*" "$programs/JavaClient.java"
    ;;
  *)
    echo "usage: $0 sarama|confluent|kafkajs|java" >&2
    exit 2
    ;;
esac
