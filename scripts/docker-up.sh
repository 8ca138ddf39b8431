#!/usr/bin/env bash
# Makes sure that a Docker daemon answers. Where one does, nothing is done; else,
# as root on Debian, it is installed and started. Prints, for eval, the variables
# that testcontainers needs here:
#
#   vars=$(scripts/docker-up.sh) && eval "$vars"
#
# Exit codes: 0 a daemon answers; 3 none does and none can be started.
set -euo pipefail
log=${DOCKERD_LOG:-${TMPDIR:-/tmp}/zkcontroller-dockerd.log}

fail() {
  echo "docker: $*" >&2
  exit 3
}

# The client's version says nothing; only "info" asks the daemon.
answers() { docker info >/dev/null 2>&1; }

# A daemon that was killed leaves its pid file, and the next one refuses to start.
# Nothing stands behind the file if that process runs no dockerd (any more).
forget_killed() {
  local file=/var/run/docker.pid
  [ -e "$file" ] || return 0
  case $(readlink "/proc/$(cat "$file")/exe" 2>/dev/null) in
    */dockerd) ;;
    *) rm -f "$file" /var/run/docker/containerd/containerd.pid ;;
  esac
}

start() {
  [ "$(id -u)" = 0 ] || fail "no daemon answers, and only root may start one; start Docker (or join group docker)"
  if ! command -v dockerd >/dev/null; then
    command -v apt-get >/dev/null || fail "dockerd is missing; install Docker"
    echo "docker: installing docker.io" >&2
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
      install -y -q --no-install-recommends docker.io iptables docker-compose; } >"$log" 2>&1 || fail "apt-get failed, see $log"
  fi
  forget_killed
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  local pid=$! i
  for ((i = 0; i < 300; i++)); do
    answers && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "dockerd does not come up, see $log"
}

answers || start
# Ryuk removes what a killed test leaves; it is an image of its own.
if ! docker image inspect testcontainers/ryuk:0.14.0 >/dev/null 2>&1 &&
  ! timeout 60 docker pull -q testcontainers/ryuk:0.14.0 >/dev/null 2>&1; then
  echo "export TESTCONTAINERS_RYUK_DISABLED=true"
fi
# Inside a machine made from an image, testcontainers would look for published
# ports at the bridge's gateway; ours are on loopback alone.
if [ -e /.dockerenv ]; then
  echo "export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1"
fi
