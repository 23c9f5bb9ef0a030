"""Recurring runs: cron, on this machine (crontab, systemd timers), and whether a run has anything new to learn."""
