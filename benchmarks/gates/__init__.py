"""How often gates and promotion decide wrongly."""
