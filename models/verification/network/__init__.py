"""The network in normal form: read from a file, compared with what onnxruntime computes."""
