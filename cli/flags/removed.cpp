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

constexpr std::array kFlags{
    RemovedFlag{"amax-decay", "0", "Use --amax-lr, the learning rate of learned ranges (docs/low_bits.md)."},
    RemovedFlag{"ewgs", "0", kLearnedRanges},
    RemovedFlag{"oscillation", "off", kMoreBits},
    RemovedFlag{"oscillation-threshold", "0.02", kMoreBits},
    RemovedFlag{"oscillation-weight", "0.001", kMoreBits},
    RemovedFlag{"progressive", "", kMoreBits},
    RemovedFlag{"quant-noise", "0", kLearnedRanges},
    RemovedFlag{"soft-share", "0", kLearnedRanges},
    RemovedFlag{"stochastic-rounding", "false", kLearnedRanges},
};

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
         (value.is_number() && off == "0" && value == 0);
}

const RemovedFlag* find_removed_flag(std::string_view name) {
  const auto* found = std::ranges::find(kFlags, name, &RemovedFlag::name);
  return found == kFlags.end() ? nullptr : found;
}

std::string removed_command(std::string_view name) {
  const auto* found = std::ranges::find(kCommands, name, &RemovedCommand::name);
  if (found == kCommands.end()) return {};
  return fmt::format("the command '{}' was removed. {}", name, found->replacement);
}

}  // namespace fq::cli
