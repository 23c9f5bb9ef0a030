"""The DAGs in stage order, the command line, schedules."""
