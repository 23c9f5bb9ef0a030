"""From a verified network to a bundle that ships."""
