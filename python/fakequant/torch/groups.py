"""Parameters of a quantized model as an optimizer of torch takes them."""
from .. import _fakequant as _fq
from .networks import codes_of_model


def parameter_groups(model, lr=None, weight_decay=0.01):
    """What an optimizer of torch takes for a model of `quantize`: the rate of `fakequant qat` for its format where `lr` is None,
    learned ranges at their share of it and without decay, biases and norms without decay too.

        optimizer = torch.optim.AdamW(fqt.parameter_groups(model))
    """
    parts = codes_of_model(model)
    if not parts:
        raise _fq.ArgumentError("[parameter_groups] the model has nothing quantized: give what fakequant.torch.quantize made")
    chosen = [_fq.training_defaults(codes.network.config, None, lr)[0] for codes in parts]
    rate, share = max(c["learning_rate"] for c in chosen), max(c["amax_rate"] for c in chosen)
    ranges = [parameter for codes in parts for parameter in codes.ranges()]
    known = {id(parameter) for parameter in ranges}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": [p for p in others if p.dim() > 1], "lr": rate, "weight_decay": weight_decay},
              {"params": [p for p in others if p.dim() <= 1], "lr": rate, "weight_decay": 0.0},
              {"params": ranges, "lr": rate * share, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
