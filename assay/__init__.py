"""The installed command, and the one name below which a wheel holds all packages."""
