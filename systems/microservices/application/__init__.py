"""The application that really runs: its services, its load, its anomalies and the campaign that records it."""
