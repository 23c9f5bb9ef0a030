"""What arguments about a policy in a closed loop share: policy and law as one chain, the check of a document."""
