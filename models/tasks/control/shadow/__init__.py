"""What a policy would have come to beside whoever set a service: the log of a shadow, its replay, the page of both."""
