#include "fakequant/export/gguf/detail/vocabulary.h"

#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kNormal = 1;  // of tokenizer.ggml.token_type

}  // namespace

void add_vocabulary(GgufModel& model, const std::vector<std::string>& tokens,
                    const std::vector<std::string>& merges, const std::string& pattern, std::int64_t size) {
  FQ_CHECK(static_cast<std::int64_t>(tokens.size()) == size, "export_gguf",
           "the vocabulary has {} tokens, the network {}", tokens.size(), size);
  std::vector<std::string> written;
  std::set<std::string> seen;
  for (const auto& token : tokens) {
    std::string text = to_byte_alphabet(token);
    FQ_CHECK(seen.insert(text).second, "export_gguf", "the token '{}' is in the vocabulary twice", token);
    written.push_back(std::move(text));
  }
  model.metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  model.metadata.emplace_back("tokenizer.ggml.pre", pattern);
  model.metadata.emplace_back("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), kNormal));
  model.metadata.emplace_back("tokenizer.ggml.tokens", std::move(written));
  model.metadata.emplace_back("tokenizer.ggml.merges", merges);
  model.metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
}

}  // namespace fq::detail
