"""Trees and forests (ONNX-ML's TreeEnsembleRegressor), decided exactly, by splitting boxes at thresholds."""
