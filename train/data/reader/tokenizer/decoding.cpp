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
using DecoderStep = LimitedStep<Tokens>;

constexpr const char* kDecoder = "decoder";

std::size_t bytes_of(const Tokens& tokens) {
  std::size_t sum = 0;
  for (const auto& token : tokens) sum += token.size();
  return sum;
}

template <class Change>
DecoderStep each(Change change) {
  return [change](Tokens tokens, const GrowthLimit&) {
    for (auto& token : tokens) token = change(std::move(token));
    return tokens;
  };
}

Tokens fused(const Tokens& tokens, const GrowthLimit&) {
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

DecoderStep strip(const json& step) {
  const std::string content = text_of(step, "content", kDecoder);
  FQ_CHECK(!content.empty(), "tokenizer", "\"content\" of the decoder Strip is empty");
  return each([content, start = id_of(member(step, "start", kDecoder), "start"),
               stop = id_of(member(step, "stop", kDecoder), "stop")](std::string token) {
    return without_ends(std::move(token), content, start, stop);
  });
}

DecoderStep replace(const json& step) {
  const std::string from = text_of(member(step, "pattern", kDecoder), "String", "the pattern of the decoder"),
                    to = text_of(step, "content", kDecoder);
  FQ_CHECK(!from.empty(), "tokenizer", "the decoder Replace has an empty pattern");
  return [from, to](Tokens tokens, const GrowthLimit& limit) {
    std::size_t sum = 0;
    for (auto& token : tokens) {
      token = replaced(token, from, to, limit, "the decoder Replace");
      limit.check(sum += token.size(), "the decoder Replace");
    }
    return tokens;
  };
}

DecoderStep metaspace(const json& step) {
  const Metaspace how = metaspace_of(step);
  return [how](Tokens tokens, const GrowthLimit&) {
    for (auto& token : tokens) {
      if (&token == &tokens.front() && how.scheme != "never" && token.starts_with(how.mark))
        token.erase(0, how.mark.size());
      token = replaced(token, how.mark, " ");
    }
    return tokens;
  };
}

DecoderStep decoder_step(const json& step);

DecoderStep sequence(const json& step) {
  const json& all = member(step, "decoders", kDecoder);
  FQ_CHECK(all.is_array(), "tokenizer", "\"decoders\" is no list");
  std::vector<DecoderStep> steps;
  for (const auto& one : all) steps.push_back(decoder_step(one));
  return [steps](Tokens tokens, const GrowthLimit& limit) {
    for (const auto& one : steps) tokens = one(std::move(tokens), limit);
    return tokens;
  };
}

DecoderStep decoder_step(const json& step) {
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

}  // namespace

Decoder read_decoder(const json& description) {
  if (description.is_null()) return [](Tokens tokens) { return tokens; };
  return [step = decoder_step(description)](Tokens tokens) {
    const GrowthLimit limit(bytes_of(tokens));
    return step(std::move(tokens), limit);
  };
}

}  // namespace fq::detail
