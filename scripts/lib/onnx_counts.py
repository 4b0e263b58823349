"""Counting what ONNX Runtime computes otherwise than fakequant did."""
import numpy as np
from onnx import TensorProto

from engine_counts import Counts
from onnx_engine import FLOAT8

ALONE = 8


def expected_codes(source, name, kind, stored):
    """The library's codes as the engine's tensor holds them: with the zero point, which the engine moves by 128 where it
    makes a signed tensor unsigned."""
    node = source.quantizer(name)
    if kind in FLOAT8:
        return stored.view(FLOAT8[kind]).astype(np.float32).view(np.int32)
    moved = kind == TensorProto.UINT8 and source.code_type(node) == TensorProto.INT8
    return stored.astype(np.int32) + source.zero_point(node) + (128 if moved else 0)


def logical(expected, value, order):
    """With the axes in that order or, where it is whether they are channels last, with the channels first. Where the shapes tell the order they have the word: the optimiser also moves the
    transpositions of the network itself. Where as many channels as pixels fit both ways, that one is taken in which fewer
    codes differ."""
    if isinstance(order, list):
        return np.ascontiguousarray(np.transpose(value, order))
    if value.ndim < 3:
        return value
    channels_last = order
    moved = np.moveaxis(value, -1, 1)
    first, last = value.shape == expected.shape, moved.shape == expected.shape
    orders = [np.ascontiguousarray(order) for order in ([moved, value] if channels_last else [value, moved])]
    if first and last:
        return min(orders, key=lambda order: codes_different(expected, order))
    return orders[0] if first == last or (last if channels_last else first) else orders[1]


def codes_different(expected, value):
    value = value.view(np.int32) if value.dtype == np.float32 else value
    return int((expected.ravel() != value.ravel()).sum())


def bits_different(expected, value):
    return int((expected.ravel().view(np.int32) != value.ravel().view(np.int32)).sum())


def count(engine, source, sides):
    """Of each side, a list of its files, which hold the same samples. Also counts in `engine` where it disagrees with
    itself: one by one, for the first few samples, and where codes are read."""
    counts = [Counts() for _ in sides]
    for files in zip(*sides, strict=True):
        for rows in files[0].batches(source.batch(files[0].batch)):
            x = files[0].x(rows)
            logits = engine.logits(x)
            values, of_exposed = engine.codes(x)
            engine.exposed_different += bits_different(logits, of_exposed)
            if counts[0].logits == 0:
                alone = [engine.logits(x[i:i + 1]) for i in range(min(ALONE, len(logits)))]
                engine.alone_different = bits_different(logits[:ALONE], np.concatenate(alone))
            for side, file in zip(counts, files):
                add(side, engine, source, file, rows, logits, values)
    return counts


def add(counts, engine, source, file, rows, logits, values):
    expected = file.logits(rows)
    if logits.shape != expected.shape:
        raise ValueError(f"it answers {list(logits.shape)} where the checkpoint answers {list(expected.shape)}")
    counts.add_logits(expected, logits)
    agree, order_of = np.ones(len(expected), bool), {name: at for at, name in enumerate(source.producers)}
    for name in sorted(engine.found, key=order_of.get):
        tensor, order, kind = engine.found[name]
        wanted = expected_codes(source, name, kind, file.codes(name, rows))
        value = logical(wanted, values[tensor], order)
        counts.add_codes(name, wanted, value, kind not in FLOAT8)
        value = value.view(np.int32) if value.dtype == np.float32 else value
        if value.size == wanted.size:
            wanted, value = (np.moveaxis(codes, file.axis(name), 0) for codes in (wanted, value.reshape(wanted.shape)))
        counts.add_begun(name, wanted, value, agree)
