"""export, save, verify: what becomes of a model that runs in the library whole."""
import numpy as np

from .. import _fakequant as _fq
from .networks import Quantized, arguments_of, listed, parts_of


def _whole(model, function):
    """The network of a model that is one part."""
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError(f"[{function}] the model has nothing quantized: give what fakequant.torch.quantize made")
    if parts[0] is not model or not isinstance(model, Quantized) or model.one_part() is None:
        reasons = [reason for part in parts for reason in (listed(part.floats), getattr(part, "in_parts", "")) if reason]
        raise _fq.ArgumentError(f"[{function}] some of the model runs in torch, so that it is no file of the library's: "
                                + ("; ".join(reasons) or "it is in parts"))
    return model.one_part()


def export(model, path, target="ort", opset=0, emulate=False):
    """Writes an ONNX file of QuantizeLinear and DequantizeLinear nodes. The whole model must run in the library."""
    _whole(model, "export").share().export(path, target=target, opset=opset, emulate=emulate)


def save(model, path):
    """A checkpoint that the command reads: fakequant verify, evaluate, inspect. The whole model must run in the library."""
    _whole(model, "save").share().save(path)


def verify(model, path, x, batch=256):
    """Runs the file of `export` in ONNX Runtime: {"outputs", "different", "flips", "max"}, how many outputs there are, how many
    have other bits than this model's, how many samples another largest output, and the largest difference. x is an input, or a
    tuple or dict of them as the model is called with.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # pairs of products must not saturate without VNNI
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    codes, found = _whole(model, "verify"), {"outputs": 0, "different": 0, "flips": 0, "max": 0.0}
    network = codes.share()
    network.eval()
    names = [value.name for value in session.get_inputs()]
    for part in zip(*(value.split(batch) for value in model.inputs_of_part(*arguments_of(x)))):
        theirs, own = session.run(None, dict(zip(names, (value.cpu().numpy() for value in part))))[0], network(codes.rows_of(part)).cpu().numpy()
        found["outputs"] += own.size
        found["different"] += int((own.view(np.int32) != theirs.view(np.int32)).sum())
        found["flips"] += int((own.reshape(len(own), -1).argmax(1) != theirs.reshape(len(own), -1).argmax(1)).sum())
        found["max"] = max(found["max"], float(np.abs(own - theirs).max(initial=0)))
    return found
