"""Whether the tests notice wrong code."""
