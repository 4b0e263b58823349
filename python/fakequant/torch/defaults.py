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
