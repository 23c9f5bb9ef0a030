#!/usr/bin/env bash
# Installs the Debian packages that `assay record`, local schedules and tests use. Run as root (or with sudo).
# The packages' own services are kept from starting: the recorder starts private copies on loopback and stops them.
#   deploy/install-debian-packages.sh            everything below
#   deploy/install-debian-packages.sh --check    list what is missing, exit 1 if anything is
set -euo pipefail
case "$#:${1:-}" in
  0: | 1:--check) ;;
  1:--help) sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) echo "expected no argument, --check or --help, got: $*" >&2; exit 2 ;;
esac

# program checked : Debian package that ships it
tools=(
  nginx:nginx-light haproxy:haproxy wrk:wrk
  redis-server:redis-server redis-benchmark:redis-tools
  mariadbd:mariadb-server sysbench:sysbench
  groonga:groonga-bin
  stress-ng:stress-ng
  prometheus:prometheus prometheus-node-exporter:prometheus-node-exporter
  crontab:cron
  postgres:postgresql
)
# Debian keeps PostgreSQL's server out of every search path, in a folder for each version.
postgresql=$(printf '%s:' /usr/lib/postgresql/*/bin)
missing=()
for entry in "${tools[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin:$postgresql" command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
if [ "${#missing[@]}" -eq 0 ]; then echo "all Debian packages are installed"; exit 0; fi
if [ "${1:-}" = --check ]; then echo "missing Debian packages: ${missing[*]}" >&2; exit 1; fi

# A policy that answers "forbidden" (101) stops maintainer scripts from starting services; an existing one is kept.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
