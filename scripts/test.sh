#!/usr/bin/env bash
# The whole test run, CI's too. Order: real parts; build; all tests with the race
# detector, on the embedded ZooKeeper; those that need a ZooKeeper again, on
# Apache's; container and process tests; fuzzing; lint; judges in short form.
# Beside all this the judges that mostly sleep; what they found comes at the end.
# REQUIRE_REAL=docker,java,kafka,python makes a test that would skip for want of one
# of these fail. The last lines say what ran and what did not.
# shellcheck disable=SC2317 # functions are called by name, through step
set -uo pipefail
cd "$(dirname "$0")/.." || exit
go=${GO:-go}
fuzztime=${FUZZTIME:-10s}
out=$PWD/.cache/test
mkdir -p "$out"
rm -f "$out"/*.log
failed=()
began=$SECONDS

step() { # NAME COMMAND...: run it, tell how long it took, go on if it fails
  local name=$1 t=$SECONDS
  shift
  echo "=== $name"
  if "$@"; then echo "--- $name: ok, $((SECONDS - t)) s"; else
    echo "--- $name: FAILED, $((SECONDS - t)) s"
    failed+=("$name")
  fi
}

# gotest LOG ARGS...: go test -v into a log; print its closing lines and every failure.
gotest() {
  local log=$out/$1
  shift
  $go test -v "$@" >"$log" 2>&1
  local code=$?
  grep -E '^(ok|FAIL|panic:|# )|no test files' "$log" | grep -v 'no test files'
  if [ "$code" != 0 ]; then
    awk '/^=== RUN|^=== (PAUSE|CONT|NAME)|^ok|^PASS/ {buf=""} {buf=buf $0 "\n"} /^ *--- FAIL|^panic:|^WARNING: DATA RACE|\[build failed\]|^#/ {printf "%s", buf; buf=""}' "$log" | tail -150
    echo "the whole log: $log"
  fi
  return "$code"
}

# fuzzone gives one target its time. Found inputs stay under testdata/fuzz.
fuzzone() { # DIR TARGET
  local log try
  log=$out/fuzz-$(echo "$1-$2" | tr -c 'A-Za-z0-9\n' -).log
  for try in 1 2 3; do
    if $go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" -parallel 1 >"$log" 2>&1; then
      echo "fuzz $1 $2: ok"
      return 0
    fi
    # The fuzzer itself sometimes fails when its time is up; an input that fails is written down.
    if grep -q 'Failing input' "$log" || ! grep -q 'context deadline exceeded' "$log"; then break; fi
    echo "fuzz $1 $2: the fuzzer did not end in time, run $try"
  done
  echo "fuzz $1 $2: FAILED"
  tail -30 "$log"
  return 1
}
export -f fuzzone
export go out fuzztime

# fuzz runs every target, two at a time.
fuzz() {
  git ls-files -co --exclude-standard '*_test.go' | xargs -r grep -noE '^func Fuzz[A-Za-z0-9_]*' |
    sed -E 's|^([^:]*)/[^/:]*:[0-9]+:func |./\1 |' | sort -u | xargs -r -P 2 -L 1 bash -c 'fuzzone "$@"' fuzzone
}

# skips fails if a test skipped for want of a part that REQUIRE_REAL names, and
# lists every other skip with its reason.
skips() {
  local log code=0
  for log in "$out"/*.log; do
    [ -e "$log" ] || continue
    awk -v need="${REQUIRE_REAL:-}" '
      /^=== (RUN|CONT|NAME) / { test = $3 }
      /^ +[^ :]+\.go:[0-9]+: / { why = $0; sub(/^ +/, "", why); reasons[test] = why } # the last one of a test that skips
      /^ *--- SKIP/ {
        bad = 0; reason = reasons[$3]; n = split(need, words, ",")
        for (i = 1; i <= n; i++) if (words[i] != "" && index(tolower(reason), words[i])) bad = 1
        print (bad ? "skipped although REQUIRE_REAL names it: " : "skipped: ") $3 " (" reason ")"
        code = code || bad
      }
      END { exit code }' "$log" || code=1
  done
  return "$code"
}

realparts() {
  local vars
  vars=$(scripts/real-parts.sh docker java kafka python)
  local code=$?
  eval "$vars"
  return "$code"
}

# composed starts docker-compose.yml once, on ports of its own, creates a topic
# and takes it all down again. Without Docker it does the same with processes.
composed() {
  export ZKC_PORT_ZOOKEEPER=28181 ZKC_PORT_CONTROLLER=28190 ZKC_PORT_BROKER1=28191 ZKC_PORT_BROKER2=28192 ZKC_PORT_BROKER3=28193
  local code=0
  scripts/up.sh 2>"$out/compose.log" &&
    bin/zkcontroller topics create --yes --zookeeper 127.0.0.1:28181 --topic orders --partitions 3 --replication-factor 3 &&
    bin/zkcontroller status --zookeeper 127.0.0.1:28181 || code=1
  [ "$code" = 0 ] || tail -20 "$out/compose.log"
  scripts/down.sh 2>>"$out/compose.log" || code=1
  return "$code"
}

# onapache runs on Apache ZooKeeper what asks the most of a ZooKeeper; without
# TEST_ZOOKEEPER it is on the embedded one. What needs one only for brokers of
# Kafka is not played twice.
onapache() {
  local code=0
  TEST_ZOOKEEPER=apache gotest apache.log -count=1 -timeout 10m ./zkstore ./brokers ./cmd/zkcontroller || code=1
  TEST_ZOOKEEPER=apache gotest apache-real.log -count=1 -timeout 10m -run 'RealProcesses|Candidates|Leav|SessionsExpire/behind' \
    ./internal/crash ./internal/realtests || code=1
  return "$code"
}

# beside starts the judges that mostly sleep; aside is their process group.
beside() {
  setsid nice -n 10 scripts/judges.sh short beside >"$out/beside.log" 2>&1 &
  aside=$!
  # Nothing is left behind when this script is stopped.
  trap 'kill -- -"$aside" 2>/dev/null' EXIT
}

besides() {
  wait "$aside"
  local code=$?
  cat "$out/beside.log"
  return "$code"
}

# All in one function: the shell has read it before anything runs.
main() {
  step "real parts" realparts
  step build env CGO_ENABLED=0 "$go" build -trimpath -o bin/zkcontroller ./cmd/zkcontroller
  shared=${ZKC_SHARED:-../shared}
  [ ! -d "$shared/judge" ] || beside
  mapfile -t packages < <($go list ./... | grep -vE '/internal/(realtests|crash)$')
  step "tests, race detector on" gotest race.log -race -count=1 -timeout 15m "${packages[@]}"
  # Its simulations have one goroutine and its processes are not built for the detector, which costs them minutes.
  step "crash points" gotest crash.log -count=1 -timeout 15m ./internal/crash
  step "tests on Apache ZooKeeper" onapache
  step "container and process tests" gotest real.log -count=1 -timeout 20m ./internal/realtests/...
  step compose composed
  step fuzz fuzz
  step lint scripts/lint.sh
  if [ -d "$shared/judge" ]; then
    step "judges, short form" scripts/judges.sh short traces cases peers bench zktraces zkpeers kgo
    step "judges that ran beside" besides
  else
    echo "judges: not run, no ZKC_SHARED"
  fi
  step skips skips

  echo "=== real servers that ran"
  grep -hoE 'real: .*' "$out"/*.log | sed -E 's/ (on|at) 127.*//; s/ broker [0-9]+//' | sort | uniq -c
  echo "=== $((SECONDS - began)) s"
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
  fi
  echo "all passed"
}

main
exit
