"""What a policy that is not proved does in states that the falsifier found."""
