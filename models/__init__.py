"""Tasks, learners, training, verification and export."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as in serving/__init__.py
