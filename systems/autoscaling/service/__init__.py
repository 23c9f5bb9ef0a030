"""A user's own service: what is recorded of it, a twin fitted to it, the files to go on with."""
