"""Controllers that learn by acting: trajectories, trainers, and the stages that a learned policy goes through."""
