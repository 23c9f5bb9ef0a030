"""How files that people write are read: pydantic models over YAML, with errors of one line."""
