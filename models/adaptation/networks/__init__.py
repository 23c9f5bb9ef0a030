"""Few-shot learners that are trained networks."""
