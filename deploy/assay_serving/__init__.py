"""The wheel `assay-serving`: what stands beside a controller, and nothing else."""
