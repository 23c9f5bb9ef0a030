"""The network that sets targets, by construction within its limits, and its exact form as a chain of ReLUs."""
