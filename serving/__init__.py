"""What stands beside a controller: bundles, sessions, registry, ledger. No torch."""

import os

# Read when onnxruntime is imported, which is after this: it would send what it does to its maker, and leave files in
# the folder for temporary ones. Whoever wants that sets it to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
