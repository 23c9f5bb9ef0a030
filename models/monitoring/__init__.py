"""Whether a champion still does what it was promoted for: tests that cry wolf rarely, a decision, its page."""
