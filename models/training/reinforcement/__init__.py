"""Learning by trial in an environment: policies, what they are trained for, and how they are judged."""
