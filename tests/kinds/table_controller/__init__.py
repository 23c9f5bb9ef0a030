"""A controller that is fitted to a table of what an operator would do: two outputs, trained in a moment."""
