"""What the control group actuator (serving/actuators/cgroup.py) is made of."""
