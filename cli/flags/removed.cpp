#include "fakequant/cli/flags/removed.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace fq::cli {
namespace {

constexpr std::string_view kMoreBits =
    "Use more --epochs, or --effective-bits, which gives sensitive layers more bits (docs/low_bits.md).";
constexpr std::string_view kLearnedRanges =
    "Use learned ranges, --amax learned, which are as accurate without it (docs/low_bits.md).";

// Name, value without an effect, and remedy. Sorted by name.
constexpr std::array kFlags{
    RemovedFlag{"amax-decay", "0",
                "Use --set amax_rate=FACTOR, the learning rate of learned ranges (docs/low_bits.md)."},
    RemovedFlag{"ewgs", "0", kLearnedRanges},
    RemovedFlag{"oscillation", "off", kMoreBits},
    RemovedFlag{"oscillation-threshold", "0.02", kMoreBits},
    RemovedFlag{"oscillation-weight", "0.001", kMoreBits},
    RemovedFlag{"progressive", "", kMoreBits},
    RemovedFlag{"quant-noise", "0", kLearnedRanges},
    RemovedFlag{"soft-share", "0", kLearnedRanges},
    RemovedFlag{"stochastic-rounding", "false", kLearnedRanges},
};

using Value = MovedFlag::Value;

// Flag, setting, whether `train` had the flag, and the conversion of its value: "keep-last" became
// "drop_last", so true becomes false.
constexpr auto kMoved = std::to_array<MovedFlag>({
    {"momentum", "optimizer.momentum"},
    {"nesterov", "optimizer.nesterov"},
    {"warmup", "schedule.warm_up"},
    {"clip", "clip_norm"},
    {"keep-last", "loader.drop_last", true, Value::inverted},
    {"accumulate", "accumulation"},
    {"rank-timeout", "rank_timeout"},
    {"reduce", "reduction"},
    {"shard-optimizer", "shard_optimizer"},
    {"early-stopping", "patience"},
    {"sample", "loader.balanced", true, Value::balanced},
    {"sample-weights", "loader.class_weights"},
    {"save-every", "save_every"},
    {"checkpoint-blocks", "checkpoint_blocks"},
    {"no-capture", "capture", true, Value::inverted},
    {"keep", "keep_epochs"},
    {"log", "log"},
    {"temperature", "distillation.temperature"},
    {"distill-weight", "distillation.weight"},
    {"weight-amax", "learn_weight_ranges", false, Value::learned},
    {"amax-gradient", "amax_gradient", false},
    {"amax-lr", "amax_rate", false},
    {"amax-momentum", "amax_momentum", false},
    {"freeze-amax-after", "freeze_amax_after", false},
    {"backward", "backward", false},
    {"quant-start", "quant_start", false},
    {"freeze-bn-after", "freeze_bn_after", false},
    {"reestimate-bn", "reestimate_bn", false},
    {"lora-alpha", "low_rank.alpha", false},
    {"lora-layers", "low_rank.layers", false},
    {"scale", "scale", false},
    {"edge-bits", "edge_bits", false},
    {"attention", "attention", false},
    {"kv", "kv", false},
    {"strict", "strict", false},
    {"keep-bn", "keep_bn", false},
    {"weight-method", "weight_method", false},
    {"algorithm", "algorithm", false},
    {"percentile", "percentile", false},
    {"mask", "mask", false},
});

struct RemovedCommand {
  std::string_view name, replacement;
};

constexpr std::array kCommands{
    RemovedCommand{"sweep", "Use a loop in Python, as in examples/sweep.py."},
};

}  // namespace

std::string RemovedFlag::message() const { return fmt::format("--{} was removed. {}", name, replacement); }

bool RemovedFlag::is_off(const nlohmann::ordered_json& value) const {
  return (value.is_string() ? value.get<std::string>() : value.dump()) == off ||
         // JSON may hold 0.0.
         (value.is_number() && off == "0" && value == 0);
}

const RemovedFlag* find_removed_flag(std::string_view name) {
  const auto* found = std::ranges::find(kFlags, name, &RemovedFlag::name);
  return found == kFlags.end() ? nullptr : found;
}

std::string MovedFlag::message() const {
  const std::string_view given = value == Value::same ? "VALUE" : "true or false";
  return fmt::format("--{} became a setting. Use --set {}={}.", name, key, given);
}

// Flags were toggles or words. The settings that replaced them are true or false.
std::string MovedFlag::setting_text(const nlohmann::ordered_json& json) const {
  std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  const auto truth = [](bool is_true) -> std::string { return is_true ? "true" : "false"; };
  if (value == Value::inverted) return truth(text == "false");
  if (value == Value::balanced) return truth(text == "balanced");
  return value == Value::learned ? truth(text == "learned") : text;
}

const MovedFlag* find_moved_flag(std::string_view command, std::string_view name) {
  const auto* found = std::ranges::find(kMoved, name, &MovedFlag::name);
  // Other commands still have some of these flags, for example --percentile of calibrate.
  const bool had = command == "qat" || command == "train";
  return found == kMoved.end() || !had || (command == "train" && !found->of_train) ? nullptr : found;
}

std::string flag_text(std::string_view command, std::string_view name) {
  const auto* moved = find_moved_flag(command, name);
  return moved == nullptr ? fmt::format("--{}", name) : fmt::format("--set {}", moved->key);
}

std::string removed_command(std::string_view name) {
  const auto* found = std::ranges::find(kCommands, name, &RemovedCommand::name);
  if (found == kCommands.end()) return {};
  return fmt::format("the command '{}' was removed. {}", name, found->replacement);
}

}  // namespace fq::cli
