#!/usr/bin/env bash
# ensure-mysql.sh DIR: the MySQL server of the tests, unpacked into DIR/root and never installed.
# It comes from Debian's suite sid, over the package source that this machine uses for Debian already. The server is too
# new for the machine's own libraries, so DIR/root also holds the libraries that it needs, its loader included.
# Without a Debian source, or without a network, nothing is unpacked and its tests are skipped.
set -euo pipefail
dir=$1
if [ -f "$dir/.ready" ]; then exit 0; fi
skipped() { echo "MySQL could not be fetched ($1): tests against it are skipped" >&2; exit 0; }
source=/etc/apt/sources.list.d/debian.sources
command -v apt-get >/dev/null && command -v dpkg >/dev/null || skipped "this machine has no apt-get"
[ -f "$source" ] || skipped "$source is missing"

echo "fetching the MySQL server for the tests (about a minute, once)"
rm -rf "$dir" && mkdir -p "$dir"/{lists/partial,cache/archives/partial,packages,root}
dir=$(cd "$dir" && pwd)
# The first paragraph is Debian's own archive; the others are for security updates, which sid does not have.
awk 'BEGIN { RS = "" } NR == 1' "$source" | sed 's/^Suites:.*/Suites: sid/' >"$dir/sid.sources"
options=(-o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o "Dir::Etc::sourcelist=$dir/sid.sources"
  -o "Dir::Etc::sourceparts=/dev/null" -o "APT::Sandbox::User=root" -o "APT::Get::List-Cleanup=0")
apt-get "${options[@]}" update >"$dir/fetch.log" 2>&1 || skipped "$dir/fetch.log"
packages=$(apt-cache "${options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
  --no-replaces --no-enhances mysql-server-core 2>>"$dir/fetch.log" | grep -E '^[a-z0-9]' | grep -v perl | sort -u || true)
echo "$packages" | grep -qx mysql-server-core || skipped "sid cannot be reached, or has no mysql-server-core"
# shellcheck disable=SC2086
(cd "$dir/packages" && apt-get "${options[@]}" download $packages) >>"$dir/fetch.log" 2>&1 || skipped "$dir/fetch.log"
for package in "$dir"/packages/*.deb; do
  dpkg -x "$package" "$dir/root" 2>>"$dir/fetch.log" || skipped "$dir/fetch.log"
done
[ -x "$dir/root/usr/sbin/mysqld" ] || skipped "the packages hold no mysqld"
rm -rf "$dir"/{lists,cache,packages}
touch "$dir/.ready"
