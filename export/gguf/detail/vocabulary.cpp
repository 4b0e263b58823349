#include "fakequant/export/gguf/detail/vocabulary.h"

#include <array>
#include <set>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kNormal = 1;  // of tokenizer.ggml.token_type

bool is_printed(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// GPT-2's characters of bytes: the printed ones stand for themselves, the others follow from U+0100.
std::array<std::string, 256> byte_texts() {
  std::array<std::string, 256> out;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int point = is_printed(byte) ? byte : next++;
    std::string& text = out[static_cast<std::size_t>(byte)];
    if (point < 0x80) {
      text = static_cast<char>(point);
    } else {
      text += static_cast<char>(0xc0 | (point >> 6));
      text += static_cast<char>(0x80 | (point & 0x3f));
    }
  }
  return out;
}

}  // namespace

void add_vocabulary(GgufModel& model, const std::vector<std::string>& tokens, std::int64_t size) {
  FQ_CHECK(static_cast<std::int64_t>(tokens.size()) == size, "export_gguf",
           "the vocabulary has {} tokens, the network {}", tokens.size(), size);
  static const std::array<std::string, 256> texts = byte_texts();
  std::vector<std::string> written;
  std::set<std::string> seen;
  for (const auto& token : tokens) {
    std::string text;
    for (const char c : token) text += texts[static_cast<unsigned char>(c)];
    FQ_CHECK(seen.insert(text).second, "export_gguf", "the token '{}' is in the vocabulary twice", token);
    written.push_back(std::move(text));
  }
  model.metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  model.metadata.emplace_back("tokenizer.ggml.pre", std::string("gpt-2"));
  model.metadata.emplace_back("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), kNormal));
  model.metadata.emplace_back("tokenizer.ggml.tokens", std::move(written));
  model.metadata.emplace_back("tokenizer.ggml.merges", std::vector<std::string>{});
  model.metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
}

}  // namespace fq::detail
