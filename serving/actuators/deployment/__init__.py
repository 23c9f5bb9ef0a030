"""The parts of the Kubernetes actuator: requests, the lease, who else owns the target, limits of pods, its memory."""
