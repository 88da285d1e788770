"""What the adapter of ONNX models is made of."""
