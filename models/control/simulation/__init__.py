"""Vectorised simulators of what a controller acts on; one file, or one folder, a task."""
