"""Tasks, learners, training, verification and export."""
