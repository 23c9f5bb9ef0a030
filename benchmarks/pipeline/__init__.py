"""Speed and memory of the pipeline's stages."""
