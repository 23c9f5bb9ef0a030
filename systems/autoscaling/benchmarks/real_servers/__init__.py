"""The controller that acts on real servers under real load, beside rules."""
