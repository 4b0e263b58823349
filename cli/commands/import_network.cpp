#include "fakequant/cli/commands/import_network.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/safetensors/import_packed.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/data/detail/token_table.h"

namespace fq::cli {

void take_quantization(Network& network, const FileQuantization& quantization, const std::string& file) {
  const QuietLog quiet;  // warnings about the config are for the author of the file
  try {
    // Places quantizers by rules, then sets the scales of the file. No range is computed again, so codes keep
    // their bits.
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
  // The loaded parameters are code * scale. On the grids of the file they give the same codes again.
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
                     name(model_target(network.module())));
}

namespace {

/// Copies tokenizer.json of the folder to the network, for `generate` and `dataset from-text`. Logs the
/// reason as a warning if the tokenizer is not usable.
void take_folder_tokenizer(Network& network, const std::string& from) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::is_directory(from) ? fs::path(from) : fs::path(from).parent_path();
  const std::string file = (folder / "tokenizer.json").string();
  if (!fs::exists(file)) return;
  try {
    const auto table = fq::detail::TokenTable::load(file);
    const auto own = std::ssize(table->tokens()), classes = network.identity().classes;
    // Fewer tokens than classes are usual: embeddings are often padded to a round size. More tokens cannot be
    // predicted.
    if (own > classes)
      return log(LogLevel::warning,
                 fmt::format("[import] {} has {} tokens, the network {}: the tokenizer is left out", file,
                             own, classes));
    network.identity().tokenizer = table->text();
  } catch (const FileError& error) {
    log(LogLevel::warning, fmt::format("{}: the tokenizer is left out", error.what()));
  }
}

}  // namespace

bool take_token_classes(Network& network, const ImportedModel& model) {
  // The importer ends token classifiers with this permutation to [N, classes, T], the axis order of dense
  // outputs.
  if (model.spec.nodes().back().name != "classes_first") return false;
  network.identity().classes = model.output_shape.at(0);
  network.identity().dense = true;
  return true;
}

Network transformer_network(const std::string& from, const ImportOptions& options,
                            const std::optional<std::string>& map) {
  std::vector<WeightRename> renames;
  if (map) renames = read_weight_renames(*map);
  const ImportedModel model = import_transformers(from, options, renames);
  Network network = Network::from_model(model, from);
  take_packed(network, transformer_weights(from));
  if (take_token_classes(network, model)) take_folder_tokenizer(network, from);
  return network;
}

}  // namespace fq::cli
