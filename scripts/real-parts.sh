#!/usr/bin/env bash
# Installs or fetches the real servers that the tests run against, and prints
# what the tests are to be told, for eval:
#
#   vars=$(scripts/real-parts.sh docker java kafka python) && eval "$vars"
#
# A part that cannot be had is named on stderr with the reason; the exit code is
# 3 if it is one that REQUIRE_REAL names, else 0 (its tests then say why they skip).
set -euo pipefail
cd "$(dirname "$0")/.."
jars=${ZKC_JARS:-$PWD/.cache/jars}
mkdir -p .cache "$jars"
code=0
lacks() { # PART REASON
  echo "real parts: no $1: $2" >&2
  case ",${REQUIRE_REAL:-}," in *",$1,"*) code=3 ;; esac
}
wants() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }
parts="${*:-docker java kafka python}"

echo "export ZKC_JARS='$jars'"
if wants java || wants kafka; then
  if ! java -version >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -q && apt-get -o DPkg::Lock::Timeout=300 \
      install -y -q --no-install-recommends openjdk-17-jdk-headless maven; } >.cache/apt.log 2>&1 || true
  fi
  if ! java -version >/dev/null 2>&1; then
    lacks java "java is missing; install a JDK of 11 or later"
    lacks kafka "it needs java"
  elif ! scripts/jars.sh "$jars" zk-3.9.5; then
    lacks java "the jars of ZooKeeper 3.9.5 are missing under $jars"
  elif wants kafka && ! scripts/jars.sh "$jars" 3.9.1 2.4.1; then
    lacks kafka "the jars of Kafka 3.9.1 and 2.4.1 are missing under $jars"
  fi
fi
# Debian's own ZooKeeper, of another release than the jars.
if wants docker && ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y -q --no-install-recommends docker-compose; } >>.cache/apt.log 2>&1 || echo "real parts: no docker-compose, see .cache/apt.log" >&2
fi
if wants java && [ ! -e /usr/share/java/zookeeper.jar ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y -q --no-install-recommends zookeeper; } >>.cache/apt.log 2>&1 || echo "real parts: no Debian ZooKeeper, see .cache/apt.log" >&2
fi
# kazoo's own tests run in a virtual environment with what PyPI has; the summaries of other judges need Python, too.
if wants python && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
      install -y -q --no-install-recommends python3 python3-venv; } >>.cache/apt.log 2>&1 || true
  fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || lacks python "python3 with its venv module is missing; install Python 3 (Debian: python3-venv)"
fi
if wants docker; then
  if ! vars=$(scripts/docker-up.sh); then
    lacks docker "see above"
  elif ! scripts/images.sh "$jars"; then
    lacks docker "the image zookeeper:3.9 is missing"
  fi
  [ -z "${vars:-}" ] || echo "$vars"
fi
exit $code
