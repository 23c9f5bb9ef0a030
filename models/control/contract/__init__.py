"""What a system promises: signals, controls, outcome, observer, rules; and what holds a system to it."""
