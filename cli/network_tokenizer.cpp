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
#include "fakequant/network/detail/import.h"
#include "fakequant/train/data/detail/tokens.h"

namespace fq::cli {
namespace {

using fq::detail::token_table;
using fq::detail::Tokenizer;
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

}  // namespace fq::cli
