#!/usr/bin/env bash
# A service to try `assay init` on: a small program behind HAProxy, in a control group, scraped by Prometheus, under load.
# As root, from a clone after `make install` and `make debian`; Ctrl-C ends all of it. Metrics: http://127.0.0.1:8890
set -euo pipefail
cd "$(dirname "$0")/../.."
state=$(mktemp -d)
python=.venv/bin/python
mkdir -p "$state"
cat > "$state/prometheus.yml" <<YAML
global: {scrape_interval: 5s}
scrape_configs:
  - {job_name: fractals, static_configs: [{targets: ['127.0.0.1:8801']}]}
  - {job_name: haproxy, static_configs: [{targets: ['127.0.0.1:8804']}]}
YAML
cat > "$state/haproxy.cfg" <<CFG
defaults
  mode http
  timeout connect 2s
  timeout client 20s
  timeout server 20s
frontend in
  bind 127.0.0.1:8800
  default_backend fractals
frontend stats
  bind 127.0.0.1:8804
  http-request use-service prometheus-exporter if { path /metrics }
backend fractals
  # what is too many waits in HAProxy: the service goes on to answer Prometheus
  server one 127.0.0.1:8801 maxconn 32
CFG
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$state"' EXIT
PATH=$PATH:/usr/sbin
$python examples/own_service/service.py 8801 & service=$!
# 0.8 cores and 256 MiB, in control groups of version 1 or 2
if [ -d /sys/fs/cgroup/cpu ]; then
  mkdir -p /sys/fs/cgroup/{cpu,memory}/shop/fractals
  echo 100000 > /sys/fs/cgroup/cpu/shop/fractals/cpu.cfs_period_us
  echo 80000 > /sys/fs/cgroup/cpu/shop/fractals/cpu.cfs_quota_us
  echo $((256 << 20)) > /sys/fs/cgroup/memory/shop/fractals/memory.limit_in_bytes
  for kind in cpu memory; do echo "$service" > /sys/fs/cgroup/$kind/shop/fractals/cgroup.procs; done
else
  mkdir -p /sys/fs/cgroup/shop
  echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control
  echo "+cpu +memory" > /sys/fs/cgroup/shop/cgroup.subtree_control
  mkdir -p /sys/fs/cgroup/shop/fractals
  echo "80000 100000" > /sys/fs/cgroup/shop/fractals/cpu.max
  echo $((256 << 20)) > /sys/fs/cgroup/shop/fractals/memory.max
  echo "$service" > /sys/fs/cgroup/shop/fractals/cgroup.procs
fi
haproxy -f "$state/haproxy.cfg" &
prometheus --config.file="$state/prometheus.yml" --storage.tsdb.path="$state/data" \
  --web.listen-address=127.0.0.1:8890 --log.level=warn &
echo "fractals behind http://127.0.0.1:8800, metrics on http://127.0.0.1:8890; Ctrl-C ends it"
$python examples/own_service/load.py http://127.0.0.1:8800/ "${1:-26}"
