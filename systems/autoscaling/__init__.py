"""An application under load whose CPU limit, memory limit and number of replicas are set (thesis, section 5.2.2)."""
