"""One declarative file per system-management task."""
