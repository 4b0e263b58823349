"""Parameters of a quantized model as an optimizer of torch takes them."""
from .. import _fakequant as _fq
from .networks import codes_of_model


_UNKNOWN_STEPS = 150  # at their rate short runs gain, and long ones lose little


def parameter_groups(model, lr=None, weight_decay=0.01, steps=None):
    """What an optimizer of torch takes for a model of `quantize`: the rate of `fakequant qat` for its format where `lr` is None,
    learned ranges at their share of it and without decay, biases and norms without decay too. Formats of few bits have a lower rate
    in runs of fewer than 300 steps: give the number of optimizer `steps`. Without it the rate is that of 150 steps.

        optimizer = torch.optim.AdamW(fqt.parameter_groups(model, steps=1000))
    """
    parts = codes_of_model(model)
    if not parts:
        raise _fq.ArgumentError("[parameter_groups] the model has nothing quantized: give what fakequant.torch.quantize made")
    if steps is not None and steps < 1:
        raise _fq.ArgumentError(f"[parameter_groups] steps is {steps}: give the number of optimizer steps, 1 or more")
    configs = [codes.network.config for codes in parts]
    chosen = [_fq.training_defaults(config, None, lr)[0] for config in configs]
    rate, share = max(c["learning_rate"] for c in chosen), max(c["amax_rate"] for c in chosen)
    if lr is None:
        rate = _fq.short_run_rate(rate, _UNKNOWN_STEPS if steps is None else steps, max(map(_fq.full_rate_steps, configs)))
    ranges = [parameter for codes in parts for parameter in codes.ranges()]
    known = {id(parameter) for parameter in ranges}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": [p for p in others if p.dim() > 1], "lr": rate, "weight_decay": weight_decay},
              {"params": [p for p in others if p.dim() <= 1], "lr": rate, "weight_decay": 0.0},
              {"params": ranges, "lr": rate * share, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
