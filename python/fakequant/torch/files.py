"""export, save, verify: what becomes of a model that runs in the library whole."""
from .. import _fakequant as _fq
from ..verify import compare
from .networks import Quantized, arguments_of, listed, parts_of


def _whole(model, function):
    """The network of a model that is one part."""
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError(f"[{function}] the model has nothing quantized: give what fakequant.torch.quantize made")
    if parts[0] is not model or not isinstance(model, Quantized) or model.one_part() is None:
        reasons = [reason for part in parts for reason in (listed(part.floats), getattr(part, "in_parts", "")) if reason]
        raise _fq.ArgumentError(f"[{function}] some of the model runs in torch, so that it is no file of the library's: "
                                + ("; ".join(dict.fromkeys(reasons)) or "it is in parts") + _way_out(model))
    return model.one_part()


def _way_out(model):
    if not getattr(model, "origin", type(model)).__module__.startswith("transformers."):
        return ""
    return ": transformers' float model is one by save_pretrained(FOLDER) and fakequant import FOLDER (docs/import.md)"


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
    codes = _whole(model, "verify")
    inputs = model.inputs_of_part(*arguments_of(x))

    def batches(most):
        for part in zip(*(value.split(most or batch) for value in inputs)):
            yield codes.rows_of(part).cpu().numpy()
    return compare(codes.share(), path, batches)
