#include "fakequant/cli/fine_tuning/low_rank.h"

#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kMostRank = 1 << 20;
constexpr double kLeastAlpha = 1e-9, kMostAlpha = 1e9;

}  // namespace

void add_low_rank_flags(FlagSet& set) {
  set.group("Low-rank adapters")
      .value("lora", "RANK",
             "train two matrices of that rank beside each weight and nothing else; a layer computes with the "
             "codes of their sum, on the grid that was calibrated, and files hold these (default: train all "
             "parameters)")
      .value("lora-alpha", "NUMBER", "their product counts NUMBER / RANK times (default: twice the rank)")
      .value("lora-layers", "PATTERN", "layers that have them, such as block?_fc* (default: all quantized)");
}

LowRankOptions read_low_rank(const Flags& flags) {
  for (const char* flag : {"lora-alpha", "lora-layers"})
    FQ_CHECK(flags.given("lora") || !flags.given(flag), flags.command(),
             "--{} is for --lora: give a rank too, or leave it out", flag);
  if (!flags.given("lora")) return {};
  LowRankOptions out{.rank = flags.integer("lora", 1, kMostRank)};
  if (flags.given("lora-alpha")) out.alpha = flags.number("lora-alpha", kLeastAlpha, kMostAlpha);
  if (flags.given("lora-layers")) out.layers = flags.text("lora-layers");
  return out;
}

}  // namespace fq::cli
