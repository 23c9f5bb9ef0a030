"""Controllers: what observes and sets targets; the rules that a platform engineer would run."""
