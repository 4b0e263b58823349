#include "fakequant/cli/text/gguf_tokenizer.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/tokenizer.h"
#include "fakequant/train/data/detail/tokens.h"

namespace fq::cli {
namespace {

using fq::detail::Tokenizer;
using fq::detail::TokenTable;

/// Tokens that a text data set of characters or words would have.
std::vector<std::string> names_of(const GgufTokenizer& given) {
  std::vector<std::string> names = Tokenizer(given.tokens, fq::detail::TokenUnit::characters).class_names();
  (void)Tokenizer::from_class_names(names);
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
    network.identity().class_names = names_of(given);
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
