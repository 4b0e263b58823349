#include "fakequant/export/gguf/detail/vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3, kUnused = 5;  // of tokenizer.ggml.token_type

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

/// Names of the control tokens that begin and end a text, in order of preference. llama.cpp finds ends of
/// turns, like <|im_end|>, by their names.
constexpr std::string_view kFirst[] = {"<|begin_of_text|>", "<s>", "<|startoftext|>", "<|endoftext|>"};
constexpr std::string_view kLast[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>"};

/// Adds the id of a control token. Without the keys llama.cpp takes token 11 for both.
void add_control(GgufModel& model, const GgufOptions& options, const char* key,
                 std::span<const std::string_view> names) {
  for (const auto name : names)
    for (const std::int32_t id : options.control)
      if (options.vocabulary[std::size_t(id)] == name) {
        model.metadata.emplace_back(key, static_cast<std::uint32_t>(id));
        return;
      }
}

}  // namespace

void add_vocabulary(GgufModel& model, const GgufOptions& options, std::int64_t size) {
  const auto& tokens = options.vocabulary;
  // Networks of transformers often have more rows than their tokenizer has tokens.
  const bool padded = !options.merges.empty() && std::ssize(tokens) < size;
  FQ_CHECK(std::ssize(tokens) == size || padded, "export_gguf",
           "the vocabulary has {} tokens, the network {}", tokens.size(), size);
  std::vector<std::string> written;
  std::set<std::string> seen;
  for (const auto& token : tokens) {
    std::string text = encode_byte_alphabet(token);
    // llama.cpp finds ids by the text of a token.
    FQ_CHECK(seen.insert(text).second, "export_gguf", "the token '{}' is in the vocabulary twice", token);
    written.push_back(std::move(text));
  }
  std::vector<std::int32_t> types = token_types(options);
  for (std::int64_t id = std::ssize(written); id < size; ++id) {
    written.push_back(fmt::format("[PAD{}]", id));  // as convert_hf_to_gguf.py
    FQ_CHECK(seen.insert(written.back()).second, "export_gguf",
             "the token '{}' is in the vocabulary: it is the name of an unused row", written.back());
    types.push_back(kUnused);
  }
  model.metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  model.metadata.emplace_back("tokenizer.ggml.pre", options.pattern);
  model.metadata.emplace_back("tokenizer.ggml.token_type", std::move(types));
  model.metadata.emplace_back("tokenizer.ggml.tokens", std::move(written));
  model.metadata.emplace_back("tokenizer.ggml.merges", options.merges);
  model.metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
  add_control(model, options, "tokenizer.ggml.bos_token_id", kFirst);
  add_control(model, options, "tokenizer.ggml.eos_token_id", kLast);
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
