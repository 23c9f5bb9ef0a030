"""What is claimed of a network: the specification language, VNN-LIB, and what each property says."""
