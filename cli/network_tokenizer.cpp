#include "fakequant/cli/network_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/tables/class_table.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/import.h"
#include "fakequant/train/data/detail/tokens.h"

namespace fq::cli {
namespace {

using fq::detail::Tokenizer;
using fq::detail::TokenTable;
using Names = std::vector<std::string>;

// Dense classes are predictions per position, which for texts are tokens.
bool predicts_tokens(const Network& network) { return network.identity().dense; }

void check_same(const Names& own, const Names& given, const std::string& function) {
  const auto [here, there] = std::ranges::mismatch(own, given);
  const auto shown = [](const Names& names, Names::const_iterator at) {
    return at == names.end() ? "missing" : "'" + fq::detail::printable(*at) + "'";
  };
  FQ_CHECK(here == own.end() && there == given.end(), function,
           "the data has another vocabulary: its token {} is {}, the network's {}. Make the data by "
           "fakequant dataset from-text with --tokenizer or --like of the training data",
           here - own.begin(), shown(given, there), shown(own, here));
}

}  // namespace

std::shared_ptr<const TokenTable> token_table(const Network& network) {
  const std::string& text = network.identity().tokenizer;
  return text.empty() ? nullptr : TokenTable::parse(text, "the network's tokenizer");
}

void take_tokenizer(Network& network, const Dataset& data, const std::string& path,
                    const std::string& function) {
  if (!data.token_ids()) return;
  const auto given = fq::detail::read_token_table(path), own = token_table(network);
  // Either both have a tokenizer.json, or both have characters or words as class names.
  if (own != nullptr && given != nullptr) return check_same(own->tokens(), given->tokens(), function);
  const Names names = network.identity().class_names;
  if (predicts_tokens(network) && !names.empty() && !data.class_names().empty())
    check_same(names, data.class_names(), function);
  FQ_CHECK(own == nullptr, function,
           "the network reads tokens of a tokenizer.json, and {} has other tokens: make the data with this "
           "file, by --tokenizer",
           path);
  // A network with class names already has a vocabulary of characters or words.
  if (given != nullptr && names.empty()) network.identity().tokenizer = given->text();
}

Tokenizer make_tokenizer(const Network& network, const std::string& checkpoint, const std::string& function) {
  const Shape sample = network.input_shape();
  // Samples are [T], so a batch is [N, T].
  FQ_CHECK(sample.size() == 2 && predicts_tokens(network), function,
           "{} does not predict the next token of texts (samples {}). Use a network for a data set of "
           "fakequant dataset from-text --windows",
           checkpoint, to_string(Shape(sample.begin() + 1, sample.end())));
  if (auto table = token_table(network)) return Tokenizer(std::move(table));
  try {
    return Tokenizer::from_names(network.identity().class_names);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("[{}] {}: {}", function, checkpoint,
                                    std::string(error.what()).substr(std::string_view("[tokens] ").size())));
  }
}

MetricOptions token_metric_options(const Network& network) {
  MetricOptions out;
  const auto table = predicts_tokens(network) ? token_table(network) : nullptr;
  if (table == nullptr) return out;
  // bpc divides by the characters of the predicted tokens, not by the number of tokens.
  for (std::int32_t id = 0; id < std::ssize(table->tokens()); ++id)
    out.characters.push_back(table->characters(id));
  return out;
}

namespace {

using fq::detail::Tokenizer;
using fq::detail::TokenTable;

/// Returns the class names of a text data set of characters or words with these tokens.
std::vector<std::string> token_class_names(const GgufTokenizer& given) {
  std::vector<std::string> names = Tokenizer(given.tokens, fq::detail::TokenUnit::characters).class_names();
  // Names that cannot be read back would make a checkpoint that `generate` rejects.
  (void)Tokenizer::from_names(names);
  return names;
}

void take(Network& network, const GgufTokenizer& given, const std::string& file) {
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

}  // namespace

void take_gguf_tokenizer(Network& network, const GgufModel& model, const std::string& file) {
  try {
    take(network, gguf_tokenizer(model, file), file);
  } catch (const Error& error) {
    log(LogLevel::warning, fmt::format("{}: its tokenizer is left out", error.what()));
  }
}

}  // namespace fq::cli
