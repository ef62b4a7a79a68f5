#!/usr/bin/env bash
# ensure-jdbc.sh DIR: the JDBC drivers that `tidegate bench mysql --part snapshot` compares with, fetched by Maven into DIR.
# Without mvn, or without a network, nothing is fetched and that comparison is skipped with a sentence.
set -euo pipefail
dir=$1
drivers=(com.mysql:mysql-connector-j:9.3.0 org.mariadb.jdbc:mariadb-java-client:3.5.3)
if [ -f "$dir/.ready" ] && [ "$(cat "$dir/.ready")" = "${drivers[*]}" ]; then exit 0; fi
if ! command -v mvn >/dev/null; then
  echo "mvn is missing: the comparison with Spark's JDBC reader is skipped" >&2
  exit 0
fi
echo "fetching the JDBC drivers for the benchmark (under a minute, once)"
rm -rf "$dir" && mkdir -p "$dir"
for driver in "${drivers[@]}"; do
  if ! mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact="$driver" \
    -DoutputDirectory="$dir" >>"$dir/fetch.log" 2>&1; then
    echo "$driver could not be fetched ($dir/fetch.log): the comparison with Spark's JDBC reader is skipped" >&2
    exit 0
  fi
done
echo "${drivers[*]}" >"$dir/.ready"
