#!/usr/bin/env bash
# Formatting, vet, staticcheck, shellcheck. Prints findings; exit code 1 if any.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
go=${GO:-go}
staticcheck=v0.8.2 # honnef.co/go/tools, 2026.2.2
code=0
bin=$PWD/.cache/bin
mkdir -p "$bin"

unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  printf 'not formatted, run gofmt -w on:\n%s\n' "$unformatted"
  code=1
fi
$go vet ./... || code=1
if [ ! -x "$bin/staticcheck-$staticcheck" ]; then
  if ! GOBIN=$bin GOFLAGS=-mod=mod $go install honnef.co/go/tools/cmd/staticcheck@$staticcheck; then
    echo "lint: staticcheck $staticcheck cannot be installed"
    exit 1
  fi
  mv "$bin/staticcheck" "$bin/staticcheck-$staticcheck"
fi
"$bin/staticcheck-$staticcheck" ./... || code=1
if command -v shellcheck >/dev/null; then
  shellcheck scripts/*.sh bench/*.sh .ci/run || code=1
else
  echo "lint: shellcheck is not installed, scripts not checked"
fi
[ $code = 0 ] && echo "lint: clean"
exit $code
