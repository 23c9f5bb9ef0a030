"""What adapts a policy to a new application: embeddings of trajectories, identification, fine-tuning."""
