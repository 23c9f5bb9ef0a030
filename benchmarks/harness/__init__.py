"""What all benchmarks share: machine, result files, isolation, Markdown."""
