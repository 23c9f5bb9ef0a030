"""The recorder of colocation campaigns on this host."""
