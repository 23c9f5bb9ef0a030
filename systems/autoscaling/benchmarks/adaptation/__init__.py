"""What adapting a policy to an application earns: the meta learner and its rivals."""
