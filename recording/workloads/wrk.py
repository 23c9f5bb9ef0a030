"""wrk as the load generator of the HTTP workloads: its command and the parser of its log.

wrk prints one summary at its end, so it is run again and again for one second each; the mean
latency of each run comes from the `done` hook of the Lua script, with all its digits. A request
that has no answer yet when its run ends is not in it: latencies are those of requests below one second.
"""

import re
import shlex
from pathlib import Path

from recording.stamped_log import split_stamped
from recording.workloads.base import Interval

# Appended to a workload's Lua script. The pause before each request of a connection is drawn around
# its mean so that the connections do not march in step; wrk does not count it as latency.
_HOOKS = """
local pause_ms = {pause_ms:.3f}
function delay() return math.floor(pause_ms * (0.5 + math.random()) + 0.5) end
function setup(thread) thread:set("seed", os.time()) end
done = function(summary, latency, requests)
  io.write(string.format("burst requests=%d duration_us=%d mean_us=%.1f failed=%d\\n",
    summary.requests, summary.duration, latency.mean, summary.errors.connect + summary.errors.read
    + summary.errors.write + summary.errors.status + summary.errors.timeout))
end
"""

_BURST = re.compile(r"^burst requests=(\d+) duration_us=(\d+) mean_us=([\d.]+) failed=(\d+)$")


def wrk_command(
    address: str, script: Path, request_lua: str, connections: int, rate_per_s: float
) -> list[str | Path]:
    """Writes the Lua script and returns the command that runs wrk in bursts of one second.

    Args:
        address: `127.0.0.1:port` of the server.
        script: file to write the Lua script to.
        request_lua: Lua code that defines `request` (and `init`).
        connections: concurrent connections.
        rate_per_s: most requests per second: each connection pauses connections / rate seconds
            between its requests.
    """
    script.write_text(request_lua + _HOOKS.format(pause_ms=1000.0 * connections / rate_per_s))
    wrk = shlex.join(
        ["wrk", "-t1", f"-c{connections}", "-d1s", "--timeout", "8s", "-s", str(script), f"http://{address}"]
    )
    return ["/bin/sh", "-c", f"while {wrk}; do :; done"]


def parse_wrk(log: str) -> list[Interval]:
    """One interval for each burst that completed requests and had no failure: what fails is often fast."""
    intervals = []
    for stamp, line in split_stamped(log):
        match = _BURST.match(line)
        if match is None:
            continue
        requests, duration_us, mean_us, failed = int(match[1]), int(match[2]), float(match[3]), int(match[4])
        if requests > 0 and duration_us > 0 and failed == 0:
            intervals.append(Interval(stamp - duration_us / 1e6, stamp, requests, mean_us / 1e3))
    return intervals
