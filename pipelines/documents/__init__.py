"""Makes the parts of docs/ that follow from the models of written files: JSON Schemas and field tables."""
