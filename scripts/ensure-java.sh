#!/usr/bin/env bash
# Finds Java 17 or newer; as root on Debian installs the headless JRE; else says what to install.
set -euo pipefail
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version() { "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1; }
if command -v "$java" >/dev/null 2>&1 && [ "$(version)" -ge 17 ] 2>/dev/null; then exit 0; fi
if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing the headless Java runtime (openjdk-17-jre-headless)"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null || \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >/dev/null
  exit 0
fi
echo "Spark needs Java 17 or newer: install it (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it" >&2
exit 1
