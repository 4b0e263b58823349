"""Inference engines: programs that run an exported file and compare it with predictions of fakequant.

    python3 -m fakequant.engines.onnx net.onnx predictions.h5
"""
