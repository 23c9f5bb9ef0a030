"""What carries out a controller's targets: one file an actuator, behind the contract of actuator.py."""
