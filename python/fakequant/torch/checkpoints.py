"""State dicts of ModelOpt and torchao into a model of `quantize`, where their grid is one of ours."""
import numpy as np
import torch

from .. import _fakequant as _fq
from .networks import parts_of

_AMAX = "._amax"
#: What else a TensorQuantizer of ModelOpt keeps, and why it is not taken.
_OTHERS = {"_pre_quant_scale": "it multiplies the input before rounding", "_scale": "its weights are packed codes",
           "_double_scale": "its weights are packed codes", "_bias_value": "its grid has an offset",
           "_global_amax": "its scales have a scale of their own", "_hadamard": "it rotates the input"}


class _Refused(Exception):
    pass


def _require(condition, why):
    if not condition:
        raise _Refused(why)


def _layers(model):
    """{path of a module of torch: (Codes, name of its node)}."""
    paths = {module: path for path, module in model.named_modules()}
    found = {}
    for part in parts_of(model):
        for codes in part.codes().values():
            for name, place in codes._places.items():
                if name.endswith(".weight") and place.name == "weight" and place.rows is None and place.module in paths:
                    found[paths[place.module]] = codes, name[:-len(".weight")]
    return found


def _quantizers(codes):
    """{every name of a quantizer: what Model.quantizers tells of it}."""
    out = {}
    for row in codes.network.quantizers():
        out |= {name: row for name in (row["name"], *row["aliases"])}
    return out


def _is_torchao(value):
    return type(value).__module__.startswith("torchao.") and hasattr(value, "qdata")


def _own(rows, name):
    row = rows.get(name)
    _require(row is not None and row["enabled"], "there is no such quantizer here, or it is off")
    return row


def _check_format(theirs, row):
    """What ModelOpt says of a quantizer beside its range."""
    own = row["descriptor"].dict()
    bits = theirs.get("_num_bits", 8)
    ours = own.get("num_bits", 8)
    _require((tuple(bits) if not isinstance(bits, int) else bits) == (tuple(ours) if not isinstance(ours, int) else ours),
             f"it has {bits} bits, and ours {ours}")
    _require(not theirs.get("_disabled"), "it is off there, and on here")
    _require(not theirs.get("_dynamic") and not theirs.get("_block_sizes"), "its range is taken from each input or block")
    _require(theirs.get("_bias") is None and not theirs.get("_rotate"), "its grid has an offset, or its input is rotated")


def _modelopt_range(row, amax, unsigned):
    """amax in the shape that ours has."""
    fields = row["descriptor"].dict()
    _require(not fields.get("dynamic"), "its range is taken from each input here")
    _require(bool(fields.get("unsigned", False)) == unsigned,
             "it is unsigned here, so that it has other steps: quantize for the target 'tensorrt', whose activations are signed")
    amax = amax.detach().float().cpu()
    _require("block_sizes" not in fields, "it has blocks here")
    _require(amax.numel() == 1 or fields.get("axis") is not None, f"it has {amax.numel()} ranges, and ours one for the tensor")
    _require(fields.get("axis") is None or amax.numel() > 1 or row["amax"] is None or row["amax"][0] == row["amax"][1],
             "it has one range for the tensor, and ours one a channel")
    return amax.flatten().numpy() if amax.numel() > 1 else amax.flatten()[:1].numpy()[0]


def _range_of(scale, bound):
    """(amax, amax / bound), the nearest quotient to the scale: not every float32 is one."""
    amax = scale * np.float32(bound)
    candidates = np.stack([amax, np.nextafter(amax, np.float32(np.inf)), np.nextafter(amax, np.float32(0))])
    best = np.abs(candidates / np.float32(bound) - scale).argmin(0)[None]
    amax = np.take_along_axis(candidates, best, 0)[0]
    return amax, amax / np.float32(bound)


def _torchao_weight(row, value):
    """(floats on its grid, amax)."""
    fields = row["descriptor"].dict()
    bits, narrow = fields.get("num_bits", 8), fields.get("narrow_range", False)
    _require(isinstance(bits, int), "it is no integer here")
    codes, zero = value.qdata, value.zero_point
    _require(zero is None or not bool(zero.any()), "it has a zero point, and our weights are symmetric")
    high = 2 ** (bits - 1) - 1
    low = -high if narrow else -high - 1
    groups = fields.get("block_sizes", {}).get("-1")
    _require(groups is not None or fields.get("axis") == 0, "its scales are one a row, and ours one for the tensor")
    block, wide = list(value.block_size), codes.shape[-1] if groups is None else groups
    _require(block == [1, wide], f"its blocks are {block}, and ours [1, {wide}]")
    outside = int(((codes < low) | (codes > high)).sum())
    _require(outside == 0, f"{outside} of its codes lie outside of {low} .. {high}, which our {bits} bits"
             f"{' with narrow_range' if narrow else ''} have")
    amax, scale = _range_of(value.scale.float().cpu().numpy(), high)
    floats = codes.cpu().float() * torch.from_numpy(scale).repeat_interleave(wide, 1)
    return floats, amax.ravel() if groups is None else amax


class _Loading:
    """What a state dict would change, and why some of it cannot be taken."""

    def __init__(self, model, state, formats):
        self.formats, self.state = formats, state
        self.layers = _layers(model)
        self.rows = {codes: _quantizers(codes) for codes, _ in self.layers.values()}
        self.plain, self.ranges, self.grids, self.refused = {}, {}, {}, []
        for name, value in state.items():
            try:
                self._take(name, value)
            except _Refused as why:
                self.refused.append(f"'{name}': {why}")

    def _range(self, path, kind, amax):
        codes, node = self.layers.get(path, (None, None))
        _require(codes is not None, "its layer is none that the library runs")
        row = _own(self.rows[codes], f"{node}.{kind}")
        return codes, row

    def _take(self, name, value):
        head, _, last = name.rpartition(".")
        path, _, kind = head.rpartition(".")
        if not kind.endswith("_quantizer"):
            return self._parameter(name, value)
        _require(last not in _OTHERS, _OTHERS.get(last))
        _require(last == "_amax", "it is no range")
        codes, row = self._range(path, kind, value)
        theirs = self.formats.get(head, {})
        _check_format(theirs, row)
        if kind == "weight_quantizer":
            self._check_narrow(path, row, value)
        self.ranges.setdefault(codes, {})[row["name"]] = _modelopt_range(row, value, bool(theirs.get("_unsigned")))

    def _check_narrow(self, path, row, amax):
        """Theirs rounds down to -128, ours mostly to -127."""
        weight = self.state.get(f"{path}.weight")
        if weight is None or not row["descriptor"].dict().get("narrow_range"):
            return
        high = 2 ** (row["descriptor"].dict().get("num_bits", 8) - 1) - 1
        _require(not bool((weight < -amax * (high + 0.5) / high).any()),
                 f"some weights lie below -amax, where it has a code {-high - 1} that ours has not")

    def _parameter(self, name, value):
        if not _is_torchao(value):
            self.plain[name] = value
            return
        path, _, last = name.rpartition(".")
        _require(last == "weight", "it is no weight of a layer")
        codes, row = self._range(path, "weight_quantizer", None)
        floats, amax = _torchao_weight(row, value)
        self.plain[name] = floats
        self.ranges.setdefault(codes, {})[row["name"]] = amax
        self.grids[name] = codes, self.layers[path][1], floats


def _refuse(refused):
    if refused:
        raise _fq.ArgumentError("[load_quantized] not taken, and nothing was changed: " + "; ".join(refused))


def _parts(state):
    """(state dict, {quantizer: its fields}) of a state dict, or of what modelopt.torch.opt.save wrote."""
    if set(state) != {"modelopt_state", "model_state_dict"}:
        return state, {}
    formats = {}
    for _, step in state["modelopt_state"]["modelopt_state_dict"]:
        formats |= step.get("metadata", {}).get("quantizer_state", {})
    return state["model_state_dict"], formats


def load_quantized(model, state_dict):
    """Takes parameters and ranges of another tool's state dict into a model of `quantize`: those of TensorQuantizers of ModelOpt
    (`<layer>.input_quantizer._amax`), and weights of torchao (Int8Tensor, IntxUnpackedToInt8Tensor), whose codes then are ours bit
    for bit (a scale of ours is amax / bound, so that one of theirs may change in its last bit). Gives the names of the ranges. What has another grid is refused by name, and then nothing is changed.

    A file of `modelopt.torch.opt.save` says what formats its quantizers have, which is compared with ours; a state dict alone does
    not. ModelOpt's activations are signed: quantize for {"preset": "int8", "target": "tensorrt"}.
    """
    loading = _Loading(model, *_parts(state_dict))
    own = set(model.state_dict())
    loading.refused += [f"'{name}': the model has no such parameter" for name in loading.plain if name not in own]
    _refuse(loading.refused)
    kept = {name: value.detach().clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    states = {codes: codes.network.quantizer_state() for codes in loading.ranges}
    try:
        model.load_state_dict(loading.plain, strict=False)
        for codes, ranges in loading.ranges.items():
            codes.share().set_amax(ranges)
            codes.pull()
        for name, (codes, node, floats) in loading.grids.items():
            given = torch.as_tensor(codes.share().weights_on_grid([node])[node])
            if not torch.equal(given, floats):
                wrong = int((given != floats).sum())
                loading.refused.append(f"'{name}': {wrong} of its {floats.numel()} weights are none of our grid's")
        _refuse(loading.refused)
    except Exception:
        model.load_state_dict(kept, strict=False)
        for codes, state in states.items():
            codes.network.load_quantizer_state(*state)
            codes.pull()
        raise
    return [name for ranges in loading.ranges.values() for name in ranges]
