"""export, save, verify: what becomes of a model that runs in the library whole."""
import numpy as np

from .. import _fakequant as _fq
from .networks import listed, parts_of


def _whole(model, function):
    """The network of a model that is one part."""
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError(f"[{function}] the model has nothing quantized: give what fakequant.torch.quantize made")
    if parts[0] is not model or len(model._steps) != 3:
        raise _fq.ArgumentError(f"[{function}] some of the model runs in torch, so that it is no file of the library's: "
                                + ("; ".join(filter(None, (listed(part.floats) for part in parts))) or "it is in parts"))
    return next(iter(model.codes().values())).share()


def export(model, path, target="ort", opset=0, emulate=False):
    """Writes an ONNX file of QuantizeLinear and DequantizeLinear nodes. The whole model must run in the library."""
    _whole(model, "export").export(path, target=target, opset=opset, emulate=emulate)


def save(model, path):
    """A checkpoint that the command reads: fakequant verify, evaluate, inspect. The whole model must run in the library."""
    _whole(model, "save").save(path)


def verify(model, path, x, batch=256):
    """Runs the file of `export` in ONNX Runtime: {"outputs", "different", "flips", "max"}, how many outputs there are, how many
    have other bits than this model's, how many samples another largest output, and the largest difference.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # pairs of products must not saturate without VNNI
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    network, found = _whole(model, "verify"), {"outputs": 0, "different": 0, "flips": 0, "max": 0.0}
    network.eval()
    name = session.get_inputs()[0].name
    for part in x.split(batch):
        theirs, own = session.run(None, {name: part.numpy()})[0], network(part.contiguous()).numpy()
        found["outputs"] += own.size
        found["different"] += int((own.view(np.int32) != theirs.view(np.int32)).sum())
        found["flips"] += int((own.reshape(len(own), -1).argmax(1) != theirs.reshape(len(own), -1).argmax(1)).sum())
        found["max"] = max(found["max"], float(np.abs(own - theirs).max(initial=0)))
    return found
