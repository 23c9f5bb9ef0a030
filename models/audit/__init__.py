"""Whether the data obey what is demanded of the model."""
