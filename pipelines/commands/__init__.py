"""The commands of `assay`, one file a family."""
