#!/usr/bin/env bash
# The MariaDB server of the tests: Debian's mariadb-server-core, which brings the program and starts no service.
# Where it cannot be installed, its tests are skipped.
set -euo pipefail
PATH=$PATH:/usr/sbin
if command -v mariadbd >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "MariaDB is missing (Debian: apt-get install mariadb-server-core): tests against it are skipped" >&2
  exit 0
fi
echo "installing the MariaDB server for the tests (under a minute, once)"
# --no-upgrade: an upgrade of the Java runtime under a running Spark would break it.
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-upgrade mariadb-server-core; }
if ! { apt-get update -qq && install; } >/dev/null 2>&1; then
  echo "MariaDB could not be installed: tests against it are skipped" >&2
fi
