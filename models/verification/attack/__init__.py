"""Search for counterexamples, and their replay in onnxruntime."""
