"""What a policy guarantees in a closed loop with a law that its state follows."""
