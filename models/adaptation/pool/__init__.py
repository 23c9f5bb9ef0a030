"""What is learned from a pool of workloads: encoders, and choices made by leaving workloads out."""
