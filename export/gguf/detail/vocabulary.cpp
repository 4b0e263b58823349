#include "fakequant/export/gguf/detail/vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3;  // of tokenizer.ggml.token_type

/// Pattern that splits texts into words: its regular expression in tokenizer.json and its name in llama.cpp.
struct Pattern {
  std::string_view regex, name;
};

// The first two expressions split alike: GPT-2's own, and the shorter form of other files. `pattern_regex`
// finds the first.
constexpr Pattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "gpt-2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
};

/// Returns llama.cpp's name of the pattern of a "pre_tokenizer".
std::string_view pattern_name(const nlohmann::json& step) {
  const std::string type = step.is_object() ? step.value("type", std::string()) : std::string();
  if (type == "Sequence")
    for (const auto& part : step.at("pretokenizers"))
      if (const auto found = pattern_name(part); found != "gpt-2") return found;
  // The step ByteLevel has the expression of GPT-2 built in.
  if (type != "Split") return "gpt-2";
  const auto regex = step.at("pattern").at("Regex").get<std::string>();
  const auto* found = std::ranges::find(kPatterns, regex, &Pattern::regex);
  FQ_CHECK(found != std::end(kPatterns), "export_gguf",
           "the pre-tokenizer Split has the regular expression {}, allowed are the expressions of GPT-2, "
           "Llama 3 and Qwen 2",
           printable(regex.substr(0, 200)));
  return found->name;
}

std::vector<std::int32_t> token_types(const GgufOptions& options) {
  std::vector<std::int32_t> types(options.vocabulary.size(), kNormal);
  for (const std::int32_t id : options.control) {
    FQ_CHECK(id >= 0 && id < std::ssize(types), "export_gguf", "the control token {} is not below {}", id,
             types.size());
    types[std::size_t(id)] = kControl;
  }
  return types;
}

}  // namespace

void add_vocabulary(GgufModel& model, const GgufOptions& options, std::int64_t size) {
  const auto& tokens = options.vocabulary;
  FQ_CHECK(std::ssize(tokens) == size, "export_gguf", "the vocabulary has {} tokens, the network {}",
           tokens.size(), size);
  std::vector<std::string> written;
  std::set<std::string> seen;
  for (const auto& token : tokens) {
    std::string text = encode_byte_alphabet(token);
    // llama.cpp finds ids by the text of a token.
    FQ_CHECK(seen.insert(text).second, "export_gguf", "the token '{}' is in the vocabulary twice", token);
    written.push_back(std::move(text));
  }
  model.metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  model.metadata.emplace_back("tokenizer.ggml.pre", options.pattern);
  model.metadata.emplace_back("tokenizer.ggml.token_type", token_types(options));
  model.metadata.emplace_back("tokenizer.ggml.tokens", std::move(written));
  model.metadata.emplace_back("tokenizer.ggml.merges", options.merges);
  model.metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
}

bool take_tokens(const TokenTable& table, GgufOptions& options) {
  options.merges = table.byte_merges();
  if (options.merges.empty()) return false;
  const auto json = nlohmann::json::parse(table.text());
  try {
    options.pattern = pattern_name(json.value("pre_tokenizer", nlohmann::json()));
  } catch (const nlohmann::json::exception&) {
    FQ_CHECK(false, "export_gguf", "the tokenizer's \"pre_tokenizer\" is damaged");
  }
  for (const auto& token : json.value("added_tokens", nlohmann::json::array()))
    if (token.value("special", false)) options.control.push_back(whole_value<std::int32_t>(token.at("id")));
  for (const auto& token : table.tokens()) options.vocabulary.push_back(decode_byte_alphabet(token));
  return true;
}

std::string_view pattern_regex(std::string_view name) {
  const auto* found = std::ranges::find(kPatterns, name, &Pattern::name);
  FQ_CHECK(found != std::end(kPatterns), "tokenizer",
           "the words of '{}' are unsupported, allowed are gpt-2, llama-bpe and qwen2",
           printable(std::string(name.substr(0, 100))));
  return found->regex;
}

}  // namespace fq::detail
