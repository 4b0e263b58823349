#include "fakequant/cli/flags/attention_formats.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/config/detail/quant_rules.h"
#include "fakequant/network/detail/named_values.h"

namespace fq::cli {
namespace {

using fq::detail::NamedValues;

using nlohmann::ordered_json;

const ordered_json& formats() {
  static const ordered_json all{
      {"int8", {{"num_bits", 8}}},
      {"int4", {{"num_bits", 4}}},
      {"fp8", {{"num_bits", {4, 3}}}},
      {"nvfp4",
       {{"num_bits", {2, 1}}, {"block_sizes", {{"-1", 16}, {"type", "dynamic"}, {"scale_bits", {4, 3}}}}}},
  };
  return all;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [name, fields] : formats().items()) names.push_back(name);
  return names;
}

/// Of 4 bits one range of all tokens costs four times what each token's own does.
std::string default_ranges(const std::string& format) { return format == "int4" ? "token" : "tensor"; }

/// The fields of the keys' and values' ranges, [N, heads, tokens, head size].
ordered_json with_ranges(const std::string& command, ordered_json fields, const NamedValues& given) {
  const std::string per = given.has("per") ? given.text("per") : default_ranges(given.name());
  const std::vector<std::string> names{"tensor", "head", "channel", "token"};
  FQ_CHECK(std::ranges::find(names, per) != names.end(), command, "--kv has no per={}{}", per,
           fq::detail::did_you_mean(per, names));
  if (per == "head") fields["axis"] = 1;
  if (per == "channel") fields["axis"] = {1, 3};
  if (per == "token") {
    fields["block_sizes"] = {{"-1", nullptr}};
    fields["dynamic"] = true;
  }
  return fields;
}

void add_rule(ordered_json& config, const char* pattern, ordered_json fields) {
  fields["pattern"] = pattern;
  fq::detail::append_rule(config, std::move(fields));
}

}  // namespace

void add_attention_flags(FlagSet& set, AttentionFormats& options) {
  set.choice(options.attention, "attention", "FORMAT", format_names(),
             "of the queries, keys, values and probabilities that attention multiplies: int8, int4, fp8 or "
             "nvfp4 (default: floats)")
      .value(options.kv, "kv", "FORMAT",
             "of keys and values, as a cache keeps them, over --attention: int8, int4, fp8 or nvfp4; with "
             "int8,per=head (or tensor, channel, token) a range for each; int4 has one for each token "
             "(default: as --attention)");
}

void add_attention_rules(const AttentionFormats& options, ordered_json& config, const std::string& command) {
  if (options.attention) {
    const ordered_json& fields = formats().at(*options.attention);
    for (const char* pattern : {"*bmm_quantizer", "*softmax_quantizer"}) add_rule(config, pattern, fields);
  }
  if (!options.kv) return;
  const NamedValues given(command, "kv", *options.kv, format_names(), [](const auto& name) {
    return name == "nvfp4" ? std::vector<std::string>{} : std::vector<std::string>{"per"};
  });
  const ordered_json fields = with_ranges(command, formats().at(given.name()), given);
  for (const char* pattern : {"*k_bmm_quantizer", "*v_bmm_quantizer"}) add_rule(config, pattern, fields);
}

}  // namespace fq::cli
