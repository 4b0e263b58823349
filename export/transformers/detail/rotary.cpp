#include "fakequant/export/transformers/detail/rotary.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

constexpr double kLargestRotaryBase = 1e12, kLargestNumber = 1e6, kLeastNumber = 1e-6;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

bool is_given(const JsonValue& values, const char* key) {
  return values.has(key) && !values.at(key).json().is_null();
}
double positive_or(const JsonValue& values, const char* key, double fallback) {
  return is_given(values, key) ? values.at(key).number(kLeastNumber, kLargestNumber) : fallback;
}

void check_whole_heads(const TransformerConfig& config, const std::optional<JsonValue>& values) {
  constexpr const char* key = "partial_rotary_factor";
  const auto check = [](const JsonValue& share) {
    if (share.number(0, 1) != 1) share.fail("positions turn a part of each head, which is not computed");
  };
  if (config.has(key)) check(config.at(key));
  if (values && is_given(*values, key)) check(values->at(key));
}

/// "default" where nothing is said.
std::string scaling_kind(const JsonValue& values) {
  for (const char* key : {"rope_type", "type"}) {
    if (!is_given(values, key)) continue;
    const std::string kind = values.at(key).string();
    const auto& known = rotary_scalings();
    if (kind != "default" && std::find(known.begin(), known.end(), kind) == known.end())
      values.at(key).fail(
          fmt::format("rotary positions are scaled by '{}', which is not computed: known are "
                      "default, {}",
                      kind, fmt::join(known, ", ")));
    return kind;
  }
  return "default";
}

/// The tokens that the network was trained on.
std::int64_t context_of(const TransformerConfig& config, const JsonValue& values, const std::string& kind) {
  constexpr const char *own = "original_max_position_embeddings", *whole = "max_position_embeddings";
  if (kind != "dynamic" && config.has(own)) return config.size(own);
  if (kind != "dynamic" && is_given(values, own)) return values.at(own).integer(1, kMostTokens);
  return config.at(whole).integer(1, kMostTokens);
}

double attention_factor(const JsonValue& values, double factor) {
  if (is_given(values, "attention_factor"))
    return values.at("attention_factor").number(kLeastNumber, kLargestNumber);
  if (!is_given(values, "mscale") || !is_given(values, "mscale_all_dim")) return 0;
  const double one = values.at("mscale").number(0, kLargestNumber),
               all = values.at("mscale_all_dim").number(0, kLargestNumber);
  const auto scale = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0; };
  return one == 0 || all == 0 ? 0 : scale(one) / scale(all);
}

ordered_json scaled_options(const TransformerConfig& config, const JsonValue& values,
                            const std::string& kind) {
  const auto context = kind == "linear" ? std::int64_t{0} : context_of(config, values, kind);
  const bool by_lengths = kind == "yarn" && !is_given(values, "factor");
  const double factor =
      by_lengths ? static_cast<double>(config.size("max_position_embeddings")) / static_cast<double>(context)
                 : values.at("factor").number(1, kLargestNumber);
  ordered_json out{{"rotary_scaling", kind}, {"rotary_factor", factor}};
  if (context > 0) out["rotary_context"] = context;
  if (kind == "llama3") {
    out["rotary_low"] = values.at("low_freq_factor").number(kLeastNumber, kLargestNumber);
    out["rotary_high"] = values.at("high_freq_factor").number(kLeastNumber, kLargestNumber);
  }
  if (kind == "yarn") {
    out["rotary_fast"] = positive_or(values, "beta_fast", 32);
    out["rotary_slow"] = positive_or(values, "beta_slow", 1);
    if (is_given(values, "truncate")) out["rotary_whole_pairs"] = values.at("truncate").boolean();
    if (const double by = attention_factor(values, factor); by > 0) out["rotary_magnitude"] = by;
  }
  return out;
}

}  // namespace

ordered_json rotary_options(const TransformerConfig& config) {
  double base = config.number_or("rope_theta", 10000, 1, kLargestRotaryBase);
  std::optional<JsonValue> values;
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.has(key)) values = config.at(key);
  check_whole_heads(config, values);
  if (!values) return {{"rotary_base", base}};
  if (is_given(*values, "rope_theta")) base = values->at("rope_theta").number(1, kLargestRotaryBase);
  ordered_json out{{"rotary_base", base}};
  if (const std::string kind = scaling_kind(*values); kind != "default")
    out.update(scaled_options(config, *values, kind));
  return out;
}

}  // namespace fq::detail
