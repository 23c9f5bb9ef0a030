"""What a reviewer reads: the HTML reports of a model version and of a run."""
