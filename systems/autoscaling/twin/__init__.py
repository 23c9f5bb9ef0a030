"""The environment of one workload: recorded load, and parameters of the servers that were recorded."""
