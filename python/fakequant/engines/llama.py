"""Calls llama.cpp, as fakequant.engines.install builds it, through ctypes."""
import ctypes
import os
import sys

import numpy as np

from .comparison import Missing, Unusable

BUFFERS = ("repacked", "plain")
FLOATS = ctypes.POINTER(ctypes.c_float)
VISIT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, FLOATS, FLOATS, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def floats(array):
    return array.ctypes.data_as(FLOATS)


class Products:
    """Products with the weights of a file of any architecture."""

    def __init__(self, home, path):
        library = os.path.join(home or "", "engine", "libfakequant_llama.so")
        if not os.path.exists(library):
            tree = os.path.abspath(f"{__file__}/../../..")
            raise Missing(f"{library} is missing. Run PYTHONPATH={tree} {sys.executable} -m fakequant.engines.install llama.cpp FOLDER "
                          "and give --engines FOLDER")
        try:
            self.calls = calls = ctypes.CDLL(library)
        except OSError as error:
            raise Missing(f"{library} does not load ({error}): remove {home}, and the next run builds it again") from None
        for name in ("version", "message", "type", "architecture"):
            getattr(calls, f"fakequant_{name}").restype = ctypes.c_char_p
        calls.fakequant_open.restype = ctypes.c_void_p
        calls.fakequant_type.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        calls.fakequant_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        for name in ("vocabulary", "heads", "kv_heads", "architecture"):
            getattr(calls, f"fakequant_{name}").argtypes = [ctypes.c_void_p]
        calls.fakequant_quantize.argtypes = [ctypes.c_char_p] * 3
        calls.fakequant_logits.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_int, FLOATS, VISIT]
        calls.fakequant_product.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, FLOATS, ctypes.c_int64, FLOATS]
        self.path = path.encode()
        self.version = calls.fakequant_version().decode()

    def type(self, name):
        """Returns the type of a tensor: "f32", "f16", "q4_0" or "q8_0"."""
        return self.calls.fakequant_type(self.path, name.encode()).decode().lower()

    def quantized(self, to, type):
        """Writes a copy of the file to `to`, with its matrices as "F32", "F16", "Q4_0" or "Q8_0", by llama.cpp's own quantizer."""
        if (status := self.calls.fakequant_quantize(self.path, to.encode(), type.encode())) != 0:
            raise Unusable(f"llama.cpp cannot quantize it to {type}: status {status}")

    def product(self, weight, buffer, x, channels):
        """Returns x [rows, columns] times a weight of the file. None if that kind of buffer cannot hold the weight."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        y = np.empty((len(x), channels), np.float32)
        status = self.calls.fakequant_product(self.path, weight.encode(), int(buffer == "repacked"), floats(x), len(x), floats(y))
        if status == 1:
            raise Unusable(f"it has no weight {weight}")
        return y if status == 0 else None


class Llama(Products):
    """A file that is open for texts of up to `context` tokens."""

    def __init__(self, home, path, context, threads, cache="f16"):
        super().__init__(home, path)
        self.net = self.calls.fakequant_open(self.path, context, threads, int(cache == "f32"))
        if not self.net:
            raise Unusable(f"llama.cpp does not load it: {self.calls.fakequant_message().decode(errors='replace').strip()}")
        self.cache = cache
        self.architecture = self.calls.fakequant_architecture(self.net).decode()
        self.heads, self.kv_heads = self.calls.fakequant_heads(self.net), self.calls.fakequant_kv_heads(self.net)

    def logits(self, ids, classes, visit=None):
        """Returns the logits [tokens, classes] of one text. Calls visit(weight, x, y) for each product of the graph."""
        if (vocabulary := self.calls.fakequant_vocabulary(self.net)) != classes:
            raise Unusable(f"its vocabulary has {vocabulary} tokens, and the vocabulary of the checkpoint {classes}")
        tokens = np.ascontiguousarray(ids, dtype=np.int32)
        out = np.empty((len(tokens), classes), np.float32)

        def report(weight, x, y, columns, channels, rows):
            visit(weight.decode(), np.ctypeslib.as_array(x, (rows, columns)).copy(),
                  np.ctypeslib.as_array(y, (rows, channels)).copy())

        status = self.calls.fakequant_logits(self.net, tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), len(tokens),
                                             floats(out), VISIT(report) if visit else VISIT())
        if status != 0:
            raise Unusable(f"llama.cpp cannot decode {len(tokens)} tokens: status {status}")
        return out
