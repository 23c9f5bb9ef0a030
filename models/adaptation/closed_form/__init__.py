"""Few-shot learners in closed form, and the baselines that they have to beat."""
