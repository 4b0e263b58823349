"""Peers of the rows generate.*: a call makes the same number of tokens, each by a run of the exported file on a full window."""

import os

import numpy as np
from peer import Side, row

TOKENS = 128


@row("generate.gpt.int8/onnxruntime", "generate.gpt_small.int8/onnxruntime")
def onnxruntime(_name, settings):
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before it is loaded
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = settings.threads, 1
    running = onnxruntime.InferenceSession(os.path.join(settings.exchange, "gpt.onnx"), options,
                                           providers=["CPUExecutionProvider"])
    (tokens,) = running.get_inputs()
    window = np.zeros((1, tokens.shape[1]), np.int64)

    def run():
        for _ in range(TOKENS):
            (logits,) = running.run(None, {tokens.name: window})
            window[0, :-1], window[0, -1] = window[0, 1:].copy(), logits[0, :, -1].argmax()

    return Side(run, variant="a window for each token")
