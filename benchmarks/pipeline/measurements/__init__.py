"""One measurement of the pipeline benchmark a file."""
