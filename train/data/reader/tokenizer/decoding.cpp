#include "fakequant/train/data/reader/tokenizer/decoding.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"
#include "fakequant/train/data/reader/tokenizer/text_steps.h"
#include "fakequant/train/data/reader/tokenizer/token_table.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

constexpr const char* kDecoder = "decoder";

template <class Change>
Decoder each(Change change) {
  return [change](Tokens tokens) {
    for (auto& token : tokens) token = change(std::move(token));
    return tokens;
  };
}

Tokens fused(const Tokens& tokens) {
  std::string all;
  for (const auto& token : tokens) all += token;
  return {all};
}

std::string without_ends(std::string token, const std::string& content, std::int32_t start,
                         std::int32_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.erase(0, content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.erase(token.size() - content.size());
  return token;
}

Decoder strip(const json& step) {
  const std::string content = text_of(step, "content", kDecoder);
  FQ_CHECK(!content.empty(), "tokenizer", "\"content\" of the decoder Strip is empty");
  return each([content, start = id_of(member(step, "start", kDecoder), "start"),
               stop = id_of(member(step, "stop", kDecoder), "stop")](std::string token) {
    return without_ends(std::move(token), content, start, stop);
  });
}

Decoder replace(const json& step) {
  const std::string from = text_of(member(step, "pattern", kDecoder), "String", "the pattern of the decoder"),
                    to = text_of(step, "content", kDecoder);
  FQ_CHECK(!from.empty(), "tokenizer", "the decoder Replace has an empty pattern");
  return each([from, to](const std::string& token) { return replaced(token, from, to); });
}

Decoder metaspace(const json& step) {
  const Metaspace how = metaspace_of(step);
  return [how](Tokens tokens) {
    for (auto& token : tokens) {
      if (&token == &tokens.front() && how.scheme != "never" && token.starts_with(how.mark))
        token.erase(0, how.mark.size());
      token = replaced(token, how.mark, " ");
    }
    return tokens;
  };
}

Decoder sequence(const json& step) {
  const json& all = member(step, "decoders", kDecoder);
  FQ_CHECK(all.is_array(), "tokenizer", "\"decoders\" is no list");
  std::vector<Decoder> steps;
  for (const auto& one : all) steps.push_back(read_decoder(one));
  return [steps](Tokens tokens) {
    for (const auto& one : steps) tokens = one(std::move(tokens));
    return tokens;
  };
}

}  // namespace

Decoder read_decoder(const json& step) {
  if (step.is_null()) return [](Tokens tokens) { return tokens; };
  const std::string type = type_of(
      step, kDecoder, {"Sequence", "ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Replace", "Strip"});
  if (type == "Sequence") return sequence(step);
  if (type == "ByteLevel") return each([](const std::string& token) { return from_byte_alphabet(token); });
  if (type == "Metaspace") return metaspace(step);
  if (type == "Fuse") return fused;
  if (type == "Replace") return replace(step);
  if (type == "Strip") return strip(step);
  return each([](std::string token) {
    const auto byte = byte_of(token);
    return byte ? std::string(1, *byte) : std::move(token);
  });
}

}  // namespace fq::detail
