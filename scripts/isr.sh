#!/usr/bin/env bash
# Plays what real brokers did (isr-oracles of ZKC_SHARED) with brokers of
# bin/zkcontroller, each a process and a candidate for the controller, on its own
# ZooKeeper, and compares every change of every znode, from the transaction log.
#
#   scripts/isr.sh short               # one or two oracles of each release, about 100 seconds
#   scripts/isr.sh full                # all, and those of testdata/isr, about 15 minutes
#   scripts/isr.sh 2.8.2/isr-basic     # these
#
# ISR_PARALLEL (3) are played at once, ports from ISR_PORT (32000) on, 10 for
# each; recordings and the brokers' output go to OUT (.cache/judges/isr). Windows
# are for an idle machine: ISR_SLACK (0) milliseconds are added to their ends. A
# play that differs is tried once more, and both are told of. Differences that
# scripts/isr-artefacts.txt names are those of a recording, not ours: they are
# counted only. testdata/isr has recordings of further stories, made in the same
# way: brokers of the release, one run each, and isrtrace merge.
# Exit code 1 if an oracle differs twice.
# shellcheck disable=SC2016,SC2317 # play is called by xargs, which fills in the slot
set -uo pipefail
cd "$(dirname "$0")/.." || exit
shared=$(cd "${ZKC_SHARED:-../shared}" && pwd) || exit
oracles=$shared/isr-oracles
mkdir -p .cache/bin "${OUT:=$PWD/.cache/judges/isr}"
isrtrace=$PWD/.cache/bin/isrtrace
ours=${ZKC:-$PWD/bin/zkcontroller}
export oracles isrtrace ours further=$PWD/testdata/isr artefacts=$PWD/scripts/isr-artefacts.txt OUT ISR_PORT=${ISR_PORT:-32000} ISR_SLACK=${ISR_SLACK:-0}

# Of each release one or two, the longest first: shrink, expand and announcements
# in every profile, admin znodes in both flows, a controller that leaves. Not for a
# busy machine are those where something is asked for right after a broker was
# frozen (a process that waits for a processor is stopped a little later) and
# those where two brokers announce within one check period.
short="0.10.1.1/isr-basic 2.8.2/isr-basic 3.9.1/isr-basic 3.9.1/leave 0.10.2.2/admin 3.5.2/admin"

# protocol is the inter.broker.protocol.version that the folder's brokers had.
protocol() {
  case $1 in
    0.10.1.1) echo 0.10.1 ;;
    0.10.2.2) echo 0.10.2 ;;
    2.8.2) echo 2.6 ;;
    *) echo "${1%.*}" ;;
  esac
}

cluster() { # PORT VERSION
  cat <<JSON
{
  "version": "zkcontroller, inter.broker.protocol.version=$2",
  "zookeeper": "127.0.0.1:$1", "base_port": $1, "txn_log": true, "warm_up": true, "start_wait_ms": 1000,
  "zk_cmd": ["$ours", "zookeeper", "{zoocfg}"], "zoo_cfg": {"forceSync": "no"},
  "broker_cmd": ["$ours", "broker", "--config", "{props}", "--controller", "--records"],
  "settings": {
    "broker.id": "{id}", "listeners": "PLAINTEXT://127.0.0.1:{port}", "zookeeper.connect": "{zk}",
    "zookeeper.session.timeout.ms": "60000", "inter.broker.protocol.version": "$2",
    "log.dirs": "{dir}/d{id}", "auto.leader.rebalance.enable": "false"
  }
}
JSON
}

# differs prints what a comparison found that is no artefact, and fails if there is nothing.
differs() { # NAME COMPARE-LOG
  grep -A 1 -E '^(DIFF|isrtrace: [^0-9])' "$2" | grep -vxF -- -- |
    grep -vEf <(awk -v name="$1" '$1 == name { sub(/^[^ ]+ +/, ""); print }' "$artefacts") -e '^isrtrace: [0-9]+ differences$' -e '^[^ ]+: [0-9]+ expected changes'
}

play() { # SLOT NAME
  local port=$((ISR_PORT + $1 * 10)) oracle=$oracles/$2.json dir=$OUT/$2 try
  [ -e "$oracle" ] || oracle=$further/$2.json
  for try in 1 2; do
    rm -rf "$dir" && mkdir -p "$dir"
    cluster "$port" "$(protocol "${2%/*}")" >"$dir/cluster.json"
    if ! "$isrtrace" play -scenario "$oracle" -cluster "$dir/cluster.json" -dir "$dir/work" -out "$dir/run.json" >"$dir/play.log" 2>&1; then
      tail -5 "$dir/play.log" >"$dir/differs.log"
    elif "$isrtrace" compare -slack "$ISR_SLACK" "$oracle" "$dir/run.json" >"$dir/compare.log" 2>&1 || ! differs "$2" "$dir/compare.log" >"$dir/differs.log"; then
      echo "ok      $2$([ "$try" = 1 ] || echo ', at the second try')$(grep -c '^DIFF' "$dir/compare.log" | sed '/^0$/d; s/.*/, but for & differences with a name/')"
      return 0
    fi
    echo "DIFFERS $2, try $try:"
    head -30 "$dir/differs.log" | sed 's/^/        /'
  done
  echo "FAILED  $2: $dir"
  return 1
}
export -f play differs cluster protocol

case ${1:-} in
  short) mapfile -t names < <(tr ' ' '\n' <<<"$short") ;;
  full) mapfile -t names < <({ cd "$oracles" && printf '%s\n' */*.json && cd "$further" && printf '%s\n' */*.json; } | sed 's/\.json$//') ;;
  "") echo "usage: $0 short|full|RELEASE/NAME..." >&2 && exit 2 ;;
  *) names=("$@") ;;
esac
(cd "$shared/isrtrace" && ${GO:-go} build -o "$isrtrace" .) || exit
printf '%s\n' "${names[@]}" | xargs -P "${ISR_PARALLEL:-3}" --process-slot-var=slot -I{} bash -c 'play "$slot" {}'
code=$?
echo "isr: ${#names[@]} oracles, $([ "$code" = 0 ] && echo all as recorded || echo some differ)"
[ "$code" = 0 ]
