"""What a preset of few bits needs beside it, as the command and Model.qat choose it."""
from .. import _fakequant as _fq


def is_preset(config):
    return isinstance(config, str) and "{" not in config


def completed(config):
    """(the config, how ranges are learned: keyword arguments of Model.learn_ranges, or None). A config of the user's own stays as
    it is."""
    if not is_preset(config):
        return config, None
    config = _fq.preset_config(config)
    chosen, _ = _fq.training_defaults(config)
    learned = {"activations": chosen["amax"] == "learned", "weights": chosen["learn_weight_ranges"],
               "gradient": chosen["amax_gradient"]}
    return config, learned if learned["activations"] or learned["weights"] else None


def without_edges(config, first, last):
    """The config for a part that has not the first or the last layer of the network."""
    gone = ("@first.",) * first + ("@last.",) * last
    if not gone or not isinstance(config, dict) or not isinstance(config.get("rules"), list):
        return config
    return config | {"rules": [rule for rule in config["rules"] if not rule["pattern"].startswith(gone)]}


def parameter_groups(model, lr=None, weight_decay=0.01):
    """What an optimizer of torch takes for a model of `quantize`: the rate of `fakequant qat` for its format where `lr` is None,
    learned ranges at their share of it and without decay, biases and norms without decay too.

        optimizer = torch.optim.AdamW(fqt.parameter_groups(model))
    """
    from .networks import parts_of

    parts = [codes for part in parts_of(model) for codes in part.codes().values()]
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
