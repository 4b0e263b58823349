#include "fakequant/cli/commands/import_quantized.h"

#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/commands/import_transformer.h"
#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/export/safetensors/import_packed.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {

void take_quantization(Network& network, const FileQuantization& quantization, const std::string& file) {
  const QuietLog of_what_the_file_has;
  try {
    network.quantize(nlohmann::ordered_json::parse(quantization.config));
    quantization.set_grids(network.module());
  } catch (const ArgumentError& error) {
    throw FileError(file, {}, fmt::format("{} (in {})", error.what(), file));
  }
}

void take_packed(Network& network, const std::string& weights) {
  StateDict floats;
  for (const auto& [name, value] : network.module().named_parameters())
    floats.set("parameters/" + name, value.tensor());
  const FileQuantization how = packed_quantization(weights, floats);
  if (!how.empty()) take_quantization(network, how, weights);
}

Network quantized_network(const QuantizedModel& model, const std::string& file) {
  Network network = Network::from_model(model.floats, file);
  (void)take_token_classes(network, model.floats);
  if (!model.quantization.empty()) take_quantization(network, model.quantization, file);
  return network;
}

std::string describe_grids(const Network& network) {
  const auto weights = weight_quantizers(network.module());
  std::map<std::string, int> counts;
  for (const auto& [name, quantizer, aliases] : named_quantizers(network.module()))
    if (quantizer->enabled())
      ++counts[fmt::format("{} {}", weights.contains(quantizer) ? "weights of" : "activations of",
                           to_string(quantizer->descriptor().format()))];
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts) parts.push_back(fmt::format("{} {}", count, what));
  return fmt::format("on the grids of the file: {}; target {}", fmt::join(parts, ", "),
                     name(target_of(network.module())));
}

}  // namespace fq::cli
