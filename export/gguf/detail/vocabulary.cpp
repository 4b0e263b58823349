#include "fakequant/export/gguf/detail/vocabulary.h"

#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3;  // of tokenizer.ggml.token_type

std::vector<std::int32_t> types_of(const GgufOptions& options) {
  std::vector<std::int32_t> types(options.vocabulary.size(), kNormal);
  for (const std::int32_t id : options.control) {
    FQ_CHECK(id >= 0 && id < std::ssize(types), "export_gguf", "the control token {} is none of {}", id,
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
    std::string text = to_byte_alphabet(token);
    FQ_CHECK(seen.insert(text).second, "export_gguf", "the token '{}' is in the vocabulary twice", token);
    written.push_back(std::move(text));
  }
  model.metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  model.metadata.emplace_back("tokenizer.ggml.pre", options.pattern);
  model.metadata.emplace_back("tokenizer.ggml.token_type", types_of(options));
  model.metadata.emplace_back("tokenizer.ggml.tokens", std::move(written));
  model.metadata.emplace_back("tokenizer.ggml.merges", options.merges);
  model.metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
}

}  // namespace fq::detail
