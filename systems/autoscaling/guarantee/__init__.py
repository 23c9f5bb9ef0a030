"""What is proved of a policy in a closed loop with the fluid law of a queue, and how that is checked again."""
