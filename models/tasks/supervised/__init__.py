"""What kinds of task share that learn from labelled rows: their task file, training, evidence and report."""
