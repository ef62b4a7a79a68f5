#!/usr/bin/env bash
# ensure-azurite.sh DIR: the Azure emulator of the tests, pinned by tests/servers/package-lock.json, installed into DIR.
# Without npm, or without a network, nothing is installed and its tests are skipped.
set -euo pipefail
dir=$1
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -f "$dir/.ready" ] && cmp -s "$dir/package-lock.json" "$here/tests/servers/package-lock.json"; then
  exit 0
fi
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
  echo "npm is missing: tests against the Azure emulator are skipped" >&2
  exit 0
fi
echo "installing the Azure emulator for the tests (under a minute, once)"
mkdir -p "$dir" && rm -f "$dir/.ready"
cp "$here/tests/servers/package.json" "$here/tests/servers/package-lock.json" "$dir/"
if (cd "$dir" && npm ci --silent --no-audit --no-fund --ignore-scripts --omit=dev >"install.log" 2>&1); then
  touch "$dir/.ready"
else
  echo "the Azure emulator could not be installed ($dir/install.log): its tests are skipped" >&2
fi
