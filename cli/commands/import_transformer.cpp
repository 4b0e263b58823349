#include "fakequant/cli/commands/import_transformer.h"

#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/commands/import_quantized.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/train/data/detail/token_table.h"

namespace fq::cli {
namespace {

/// That of the folder, which `generate` and `dataset from-text` read as that of a data set; a warning says
/// why one is not taken.
void take_tokenizer_beside(Network& network, const std::string& from) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::is_directory(from) ? fs::path(from) : fs::path(from).parent_path();
  const std::string file = (folder / "tokenizer.json").string();
  if (!fs::exists(file)) return;
  try {
    const auto table = fq::detail::TokenTable::load(file);
    const auto own = std::ssize(table->tokens()), classes = network.identity().classes;
    if (own > classes)
      return log(LogLevel::warning, fmt::format("[import] {} has {} tokens, the network {}: it is left out",
                                                file, own, classes));
    network.identity().tokenizer = table->text();
  } catch (const FileError& error) {
    log(LogLevel::warning, fmt::format("{}: it is left out", error.what()));
  }
}

}  // namespace

bool take_token_classes(Network& network, const ImportedModel& model) {
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
  if (take_token_classes(network, model)) take_tokenizer_beside(network, from);
  return network;
}

}  // namespace fq::cli
