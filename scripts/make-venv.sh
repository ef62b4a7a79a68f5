#!/usr/bin/env bash
# make-venv.sh PYTHON DIR: an own environment with the package and its pinned dependencies.
set -euo pipefail
python=$1 venv=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Tidegate needs Python 3.11 or newer: install it, or name it with: make PYTHON=/path/to/python3.11" >&2
  exit 1
fi
if [ ! -x "$venv/bin/python" ]; then
  echo "creating $venv and installing pinned packages (about a minute, once)"
  if ! "$python" -m venv "$venv" 2>/dev/null; then
    rm -rf "$venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
      "$python" -m venv "$venv"
    else
      echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)" >&2
      exit 1
    fi
  fi
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
