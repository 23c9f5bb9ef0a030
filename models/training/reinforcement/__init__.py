"""Training of policies by reward: from trajectories, through environments, and the rules that they have to beat."""
