"""What has to be proved, box by box."""
