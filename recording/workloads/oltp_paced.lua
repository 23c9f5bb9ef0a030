-- sysbench's read/write transactions with a pause after each, and each thread's own latency log:
--   transactions count=<since the thread's last line> mean_ms=<mean latency, pauses excluded> seconds=<time since then>
-- sysbench's own reports give percentiles only, and its --rate queues requests without bound when the
-- server is slow.
require("oltp_read_write")

local ffi = require("ffi")
ffi.cdef [[
typedef struct { long seconds; long nanoseconds; } assay_timespec;
int clock_gettime(int clock, assay_timespec *time);
int usleep(unsigned int microseconds);
]]

sysbench.cmdline.options.pause_ms = {"Mean pause of a thread between its transactions, ms", 0}

local transaction = event
local time = ffi.new("assay_timespec")
local count, total_s, since_s = 0, 0, nil

local function now_s()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

function event()
  local start_s = now_s()
  since_s = since_s or start_s
  transaction()
  local end_s = now_s()
  count, total_s = count + 1, total_s + end_s - start_s
  if end_s - since_s >= 0.5 then
    io.write(string.format("transactions count=%d mean_ms=%.4f seconds=%.4f\n",
      count, 1000 * total_s / count, end_s - since_s))
    io.flush()
    count, total_s, since_s = 0, 0, end_s
  end
  -- Drawn around its mean so that the threads do not march in step.
  ffi.C.usleep(1000 * sysbench.opt.pause_ms * (0.5 + sysbench.rand.uniform_double()))
end
