"""What `assay serve` takes for an answer."""
