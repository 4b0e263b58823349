#include "fakequant/layers/config/detail/weight_algorithm_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json method_of(const ordered_json& given) {
  return given.is_object() ? given.value("method", ordered_json()) : given;
}

void set_algorithm(QuantConfig& config, const ordered_json& given) {
  config.weight_algorithm = method_of(given).get<std::string>();
  config.weight_options.reset();
  if (!given.is_object()) return;
  json options(given);
  options.erase("method");
  config.weight_options = std::make_shared<const json>(std::move(options));
}

/// ModelOpt's, with what it leaves out; without what is none of this algorithm's options.
ordered_json with_reference_defaults(ordered_json given) {
  if (!given.is_object()) given = {{"method", given}};
  for (const char* key : {"percentile", "stride", "start_bin", "rules", "postprocess", "debug", "block_size",
                          "fused", "max_co_batch_size", "max_tokens_per_batch"})
    given.erase(key);
  if (given["method"] == "smoothquant" && !given.contains("alpha")) given["alpha"] = 1.0;
  return given;
}

}  // namespace

const std::vector<std::string>& weight_algorithms() {
  static const std::vector<std::string> names{
#define FQ_WEIGHT_ALGORITHM(name) #name,
#include "fakequant/layers/config/detail/weight_algorithms.def"
  };
  return names;
}

bool is_weight_algorithm(std::string_view name) {
  return std::ranges::find(weight_algorithms(), name) != weight_algorithms().end();
}

void read_weight_algorithm(const ordered_json& input, QuantConfig& config) {
  const auto named = [](const ordered_json& given) {
    const ordered_json method = method_of(given);
    return method.is_string() && is_weight_algorithm(method.get<std::string>());
  };
  if (const auto theirs = input.find("algorithm"); theirs != input.end() && named(*theirs)) {
    set_algorithm(config, with_reference_defaults(*theirs));
    config.weight_place = "/algorithm";
  }
  const auto own = input.find("weight_algorithm");
  if (own == input.end()) return;
  config.weight_algorithm.clear();
  config.weight_options.reset();
  config.weight_place = "/weight_algorithm";
  if (own->is_null()) return;
  at_place(config.weight_place, [&] {
    const ordered_json method = method_of(*own);
    FQ_CHECK(named(*own), "quantize", "'weight_algorithm' is {}{}", own->dump(),
             did_you_mean(method.is_string() ? method.get<std::string>() : "", weight_algorithms()));
    set_algorithm(config, *own);
  });
}

void set_reference_algorithm(std::string_view name, QuantConfig& config) {
  set_algorithm(config, with_reference_defaults(std::string(name)));
}

}  // namespace fq::detail
