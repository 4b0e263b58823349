#include "fakequant/export/gguf/import.h"

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/safetensors/import_packed.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/import.h"
#include "fakequant/train/data/detail/tokens.h"

namespace fq {
namespace detail {
namespace {

void quantize_as_file(Network& network, const FileQuantization& quantization, const std::string& file) {
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

/// Sets the classes of a network that predicts a class for each token. Returns false for others.
bool set_token_classes(Network& network, const ImportedModel& model) {
  // The importer ends token classifiers with this permutation to [N, classes, T], the axis order of dense
  // outputs.
  if (model.spec.nodes().back().name != "classes_first") return false;
  network.identity().classes = model.output_shape.at(0);
  network.identity().dense = true;
  return true;
}

Network network_of(const QuantizedModel& model, const std::string& file) {
  Network network = Network::from_model(model.floats, file);
  static_cast<void>(set_token_classes(network, model.floats));
  // The loaded parameters are code * scale. On the grids of the file they give the same codes again.
  if (!model.quantization.empty()) quantize_as_file(network, model.quantization, file);
  return network;
}

QuantizedModel read_onnx(const std::string& path, const ImportOptions& options) {
  const OnnxModel file = load_onnx(path);
  try {
    // Codes and scales of a quantized file are kept. A float import would lose them.
    if (is_quantized(file)) return import_quantized_onnx(file, options);
    return {import_onnx(file, options), {}};
  } catch (const ArgumentError& error) {
    throw FileError(path, {}, fmt::format("{} (in {})", error.what(), path));
  }
}

/// Returns the class names of a text data set of characters or words with these tokens.
std::vector<std::string> token_class_names(const GgufTokenizer& given) {
  std::vector<std::string> names = Tokenizer(given.tokens, TokenUnit::characters).class_names();
  // Names that cannot be read back would make a checkpoint that `generate` rejects.
  static_cast<void>(Tokenizer::from_names(names));
  return names;
}

void copy_tokenizer(Network& network, const GgufTokenizer& given, const std::string& file) {
  const auto classes = network.identity().classes;
  const auto check = [&](std::ptrdiff_t tokens) {
    if (tokens > classes)
      throw FileError(file, {}, fmt::format("{} has {} tokens, the network {}", file, tokens, classes));
  };
  if (!given.json.empty()) {
    const auto table = TokenTable::parse(given.json, file);
    check(std::ssize(table->tokens()));
    network.identity().tokenizer = table->text();
  } else if (!given.tokens.empty()) {
    check(std::ssize(given.tokens));
    network.identity().class_names = token_class_names(given);
  }
}

/// Copies the tokenizer of the file. A tokenizer that cannot be used is a warning: the network is complete
/// without it.
void copy_gguf_tokenizer(Network& network, const GgufModel& model, const std::string& file) {
  try {
    copy_tokenizer(network, gguf_tokenizer(model, file), file);
  } catch (const Error& error) {
    log(LogLevel::warning, fmt::format("{}: its tokenizer is left out", error.what()));
  }
}

/// Copies tokenizer.json of the folder. A tokenizer that cannot be used is a warning.
void copy_folder_tokenizer(Network& network, const std::string& from) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::is_directory(from) ? fs::path(from) : fs::path(from).parent_path();
  const std::string file = (folder / "tokenizer.json").string();
  if (!fs::exists(file)) return;
  try {
    const auto table = TokenTable::load(file);
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

ImportedNetwork import_model_file(const std::string& path, const ImportOptions& options) {
  if (!path.ends_with(".gguf")) {
    QuantizedModel model = read_onnx(path, options);
    Network network = network_of(model, path);
    return {std::move(model.floats), std::move(network)};
  }
  const GgufModel file = load_gguf(path);
  QuantizedModel model = import_gguf(file, options, path);
  Network network = network_of(model, path);
  copy_gguf_tokenizer(network, file, path);
  return {std::move(model.floats), std::move(network)};
}

Network import_folder(const std::string& path, const ImportOptions& options,
                      const std::vector<WeightRename>& renames) {
  const ImportedModel model = import_transformers(path, options, renames);
  Network network = Network::from_model(model, path);
  quantize_as_packed(network, transformer_weights(path));
  if (set_token_classes(network, model)) copy_folder_tokenizer(network, path);
  return network;
}

void quantize_as_packed(Network& network, const std::string& weights) {
  StateDict floats;
  for (const auto& [name, value] : network.module().named_parameters())
    floats.set("parameters/" + name, value.tensor());
  const FileQuantization how = packed_quantization(weights, floats);
  if (!how.empty()) quantize_as_file(network, how, weights);
}

std::shared_ptr<const TokenTable> token_table(const Network& network) {
  const std::string& text = network.identity().tokenizer;
  return text.empty() ? nullptr : TokenTable::parse(text, "the network's tokenizer");
}

}  // namespace detail

Network Network::import_file(const std::string& path, const ImportOptions& options) {
  if (is_transformer(path)) return detail::import_folder(path, options, {});
  return detail::import_model_file(path, options).network;
}

namespace {

/// Returns the tokens of the class names. Data sets of texts write an unprintable byte as "\x0a".
std::vector<std::string> token_texts(const Identity& identity) {
  auto names = identity.class_names;
  for (auto& name : names)
    if (name.size() == 4 && name.starts_with("\\x") &&
        std::isxdigit(static_cast<unsigned char>(name[2])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(name[3])) != 0)
      name = std::string(1, static_cast<char>(std::stoi(name.substr(2), nullptr, 16)));
  return names;
}

}  // namespace

GgufModel Network::to_gguf(const std::string& name, bool f16) const {
  GgufOptions options{.name = name, .f16 = f16};
  const auto table = detail::token_table(*this);
  if (!table) options.vocabulary = token_texts(identity());
  // llama.cpp implements byte-level BPE. With another tokenizer it would split texts differently.
  else if (!detail::take_tokens(*table, options))
    log(LogLevel::warning,
        "[export] the network's tokenizer is not byte-level BPE, so the file has no tokenizer. Use token ids "
        "in llama.cpp");
  return gguf_model(module(), input_shape(), options);
}

}  // namespace fq
