#include "fakequant/train/data/detail/token_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using Tokens = TokenTable::Tokens;
using Step = TokenTable::DecoderStep;

// A damaged or hostile file must not allocate without bound: a single large id would size the table.
constexpr std::int32_t kMostIds = 1 << 24;

// --- members of the file: each function throws ArgumentError with the name of the member

json optional_member(const json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : json();
}

const json& member(const json& object, const char* name, std::string_view where) {
  FQ_CHECK(object.is_object() && object.contains(name), "tokenizer", "{} has no \"{}\"", where, name);
  return object[name];
}

std::string text_member(const json& object, const char* name, std::string_view where) {
  const json& value = member(object, name, where);
  FQ_CHECK(value.is_string(), "tokenizer", "\"{}\" of {} is no text", name, where);
  return value.get<std::string>();
}

std::int32_t whole_number(const json& value, std::string_view where) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  const auto number = whole_if<std::int32_t>(value, 0, most);
  FQ_CHECK(number, "tokenizer", "the id of {} is not a whole number from 0 to {}", where, most);
  return *number;
}

std::string type_member(const json& object, std::string_view where, const std::vector<std::string>& known) {
  const std::string type = text_member(object, "type", where);
  FQ_CHECK(std::ranges::find(known, type) != known.end(), "tokenizer",
           "the {} is of the type '{}', allowed are {}", where, printable(type.substr(0, 80)),
           fmt::join(known, ", "));
  return type;
}

// --- vocabulary

class Vocabulary {
 public:
  void add(const std::string& token, std::int32_t id) {
    FQ_CHECK(id < kMostIds, "tokenizer", "the token '{}' has the id {}, allowed are 0 to {}",
             printable(token), id, kMostIds - 1);
    const auto [known, is_new] = ids_.try_emplace(token, id);
    if (!is_new && known->second == id) return;
    FQ_CHECK(is_new, "tokenizer", "the token '{}' has two ids, {} and {}", printable(token), known->second,
             id);
    const auto at = std::size_t(id);
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      taken_.resize(at + 1);
    }
    FQ_CHECK(!taken_[at], "tokenizer", "the id {} belongs to '{}' and to '{}'", id, printable(tokens_[at]),
             printable(token));
    tokens_[at] = token;
    taken_[at] = true;
  }

  [[nodiscard]] Tokens take() {
    FQ_CHECK(tokens_.size() > 1, "tokenizer", "the vocabulary has {} tokens, 2 or more are needed",
             tokens_.size());
    const auto hole = std::ranges::find(taken_, false) - taken_.begin();
    FQ_CHECK(hole == std::ssize(taken_), "tokenizer",
             "no token has the id {}, allowed are vocabularies without holes (ids up to {})", hole,
             taken_.size() - 1);
    return std::move(tokens_);
  }

 private:
  Tokens tokens_;
  std::vector<bool> taken_;
  std::map<std::string, std::int32_t> ids_;
};

Tokens read_tokens(const json& file) {
  Vocabulary out;
  const json& model = member(file, "model", "it");
  // Files of old versions of the package tokenizers have BPE models without "type".
  const bool old_bpe = model.is_object() && !model.contains("type") && model.contains("merges");
  if (!old_bpe) (void)type_member(model, "model", {"BPE", "Unigram", "WordPiece", "WordLevel"});
  const json& vocabulary = member(model, "vocab", "the model");
  FQ_CHECK(vocabulary.is_structured(), "tokenizer", "\"vocab\" of the model is no object or list");
  if (vocabulary.is_object())
    for (const auto& [token, id] : vocabulary.items())
      out.add(token, whole_number(id, "'" + printable(token) + "'"));
  // Unigram writes the vocabulary as a list of [token, score]: the index is the id.
  std::int32_t next = 0;
  for (const json& entry : vocabulary.is_array() ? vocabulary : json::array()) {
    FQ_CHECK(entry.is_array() && entry.size() == 2 && entry[0].is_string(), "tokenizer",
             "token {} of \"vocab\" is no pair of a text and a score", next);
    out.add(entry[0].get<std::string>(), next++);
  }
  // Special tokens repeat entries of the vocabulary, or continue its ids. `add` accepts an equal repetition.
  const json added = optional_member(file, "added_tokens");
  FQ_CHECK(added.is_array() || added.is_null(), "tokenizer", "\"added_tokens\" is no list");
  for (const auto& token : added) {
    const std::string text = text_member(token, "content", "an added token");
    FQ_CHECK(!text.empty(), "tokenizer", "an added token has an empty \"content\"");
    out.add(text, whole_number(member(token, "id", "an added token"), "'" + printable(text) + "'"));
  }
  return out.take();
}

/// Returns merges if the decoder reads GPT-2's alphabet, as llama.cpp's "gpt2" does.
Tokens read_byte_merges(const json& file) {
  Tokens out;
  const json merges = optional_member(file["model"], "merges");
  if (optional_member(optional_member(file, "decoder"), "type") != "ByteLevel" || merges.is_null())
    return out;
  FQ_CHECK(merges.is_array(), "tokenizer", "\"merges\" of the model is no list");
  for (const json& merge : merges) {
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    FQ_CHECK(pair || merge.is_string(), "tokenizer", "merge {} is no pair of tokens", out.size());
    out.push_back(pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                       : merge.get<std::string>());
  }
  return out;
}

// --- decoder

/// Throws if a step makes too much text. A hostile file can chain many steps that each multiply it.
void check_growth(std::size_t bytes, std::size_t most) {
  FQ_CHECK(
      bytes <= most, "tokenizer",
      "the decoder makes {} bytes of a text, at most {} are allowed (64 times its own and 64 KiB): use the "
      "tokenizer.json that the network was trained with",
      bytes, most);
}

std::size_t count_bytes(const Tokens& tokens) {
  std::size_t sum = 0;
  for (const auto& token : tokens) sum += token.size();
  return sum;
}

/// Replaces each `from`, which must not be empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::size_t most) {
  // The result is measured before it is built, so that a hostile pattern cannot exhaust the memory.
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += from.size()) ++count;
  check_growth(text.size() + count * to.size() - count * from.size(), most);
  std::string out;
  for (std::size_t at = 0; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

/// Returns a step that changes each token by change(token, index of the token).
template <class Change>
Step change_each(Change change) {
  return [change](Tokens& tokens, std::size_t most) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = change(std::move(tokens[i]), i, tokens.size(), most);
      check_growth(sum += tokens[i].size(), most);
    }
  };
}

// Removes up to `start` and `stop` repetitions of `content` at the ends of each token.
Step strip_step(const json& step) {
  const std::string content = text_member(step, "content", "decoder");
  FQ_CHECK(!content.empty(), "tokenizer", "\"content\" of the decoder Strip is empty");
  const auto start = whole_number(member(step, "start", "decoder"), "start");
  const auto stop = whole_number(member(step, "stop", "decoder"), "stop");
  return change_each([=](std::string token, std::size_t, std::size_t, std::size_t) {
    for (auto left = start; left > 0 && token.starts_with(content); --left) token.erase(0, content.size());
    for (auto left = stop; left > 0 && token.ends_with(content); --left)
      token.erase(token.size() - content.size());
    return token;
  });
}

Step replace_step(const json& step) {
  const std::string from = text_member(member(step, "pattern", "decoder"), "String",
                                       "the pattern of the decoder"),
                    to = text_member(step, "content", "decoder");
  FQ_CHECK(!from.empty(), "tokenizer", "the decoder Replace has an empty pattern");
  return change_each([=](const std::string& token, std::size_t, std::size_t, std::size_t most) {
    return replaced(token, from, to, most);
  });
}

/// Replaces marks by spaces. Removes the mark before the whole text unless the scheme is "never".
Step metaspace_step(const json& step) {
  const std::string mark =
      step.contains("replacement") ? text_member(step, "replacement", "Metaspace") : std::string("\u2581");
  FQ_CHECK(!mark.empty() && first_character(mark).bytes.size() == mark.size(), "tokenizer",
           "\"replacement\" of Metaspace is '{}': one character is needed", printable(mark.substr(0, 80)));
  // Older files have add_prefix_space instead of prepend_scheme.
  const json prefix = optional_member(step, "add_prefix_space");
  const std::string scheme = step.contains("prepend_scheme")
                                 ? text_member(step, "prepend_scheme", "Metaspace")
                             : prefix == false ? "never"
                                               : "always";
  FQ_CHECK(scheme == "always" || scheme == "first" || scheme == "never", "tokenizer",
           "\"prepend_scheme\" of Metaspace is '{}', allowed are always, first and never",
           printable(scheme.substr(0, 80)));
  return change_each([=](std::string token, std::size_t at, std::size_t, std::size_t most) {
    if (at == 0 && scheme != "never" && token.starts_with(mark)) token.erase(0, mark.size());
    return replaced(token, mark, " ", most);
  });
}

/// Joins tokens with the prefix to the word before; other tokens begin a word.
Step word_piece_step(const json& step) {
  const std::string prefix = text_member(step, "prefix", "decoder");
  const bool cleanup = optional_member(step, "cleanup") == true;
  return change_each([=](std::string token, std::size_t at, std::size_t, std::size_t most) {
    if (at > 0 && token.starts_with(prefix))
      token.erase(0, prefix.size());
    else if (at > 0)
      token.insert(0, 1, ' ');
    if (!cleanup) return token;
    // Replaces in the order of `cleanup` in the package tokenizers (decoders/wordpiece.rs).
    for (const auto& [from, to] : {std::pair{" .", "."},
                                   {" ?", "?"},
                                   {" !", "!"},
                                   {" ,", ","},
                                   {" ' ", "'"},
                                   {" n't", "n't"},
                                   {" 'm", "'m"},
                                   {" do not", " don't"},
                                   {" 's", "'s"},
                                   {" 've", "'ve"},
                                   {" 're", "'re"}})
      token = replaced(token, from, to, most);
    return token;
  });
}

// BPE with a word-end suffix, for example "</w>". The suffix becomes a space, except after the last token.
Step word_end_step(const json& step) {
  const std::string suffix = text_member(step, "suffix", "decoder");
  FQ_CHECK(!suffix.empty(), "tokenizer", "\"suffix\" of the decoder is empty");
  return change_each([=](const std::string& token, std::size_t at, std::size_t count, std::size_t most) {
    return replaced(token, suffix, at + 1 == count ? "" : " ", most);
  });
}

/// Converts "<0x0A>" to the byte.
std::string byte_token(std::string token) {
  unsigned byte = 0;
  const bool one = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
                   std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
  return one ? std::string(1, static_cast<char>(byte)) : std::move(token);
}

Step decoder_step(const json& step);

Step step_sequence(const json& step) {
  const json& all = member(step, "decoders", "decoder");
  FQ_CHECK(all.is_array(), "tokenizer", "\"decoders\" is no list");
  std::vector<Step> steps;
  for (const auto& one : all) steps.push_back(decoder_step(one));
  return [steps](Tokens& tokens, std::size_t most) {
    for (const auto& one : steps) one(tokens, most);
  };
}

Step decoder_step(const json& step) {
  const std::string type = type_member(step, "decoder",
                                       {"Sequence", "ByteLevel", "Metaspace", "ByteFallback", "Fuse",
                                        "Replace", "Strip", "WordPiece", "BPEDecoder"});
  if (type == "Sequence") return step_sequence(step);
  if (type == "Metaspace") return metaspace_step(step);
  if (type == "Replace") return replace_step(step);
  if (type == "Strip") return strip_step(step);
  if (type == "WordPiece") return word_piece_step(step);
  if (type == "BPEDecoder") return word_end_step(step);
  // Fuse joins the tokens into one, so that later steps (Strip) see the whole text.
  if (type == "Fuse")
    return [](Tokens& tokens, std::size_t) { tokens = {fmt::format("{}", fmt::join(tokens, ""))}; };
  const bool bytes = type == "ByteFallback";
  return change_each([bytes](std::string token, std::size_t, std::size_t, std::size_t) {
    return bytes ? byte_token(std::move(token)) : decode_byte_alphabet(token);
  });
}

[[noreturn]] void refuse(const std::string& file, std::string why) {
  const std::string origin = "[tokenizer] ";
  if (why.starts_with(origin)) why.erase(0, origin.size());
  throw FileError(file, "", fmt::format("[tokenizer] {}: {}", file, why));
}

// --- GPT-2's alphabet

// Bytes that GPT-2's bytes_to_unicode does not change: printable ASCII, and Latin-1 without the soft hyphen.
bool is_printed(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

const std::array<std::string, 256>& byte_alphabet() {
  static const auto texts = [] {
    std::array<std::string, 256> out;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      // Code points are below 0x180, so that two bytes of UTF-8 are enough.
      const int point = is_printed(byte) ? byte : next++;
      std::string& text = out[std::size_t(byte)];
      if (point < 0x80)
        text = static_cast<char>(point);
      else
        text += {static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))};
    }
    return out;
  }();
  return texts;
}

}  // namespace

TokenTable::TokenTable(const json& file, std::string text) : text_(std::move(text)) {
  FQ_CHECK(file.is_object(), "tokenizer", "it is no object with a \"model\"");
  tokens_ = read_tokens(file);
  byte_merges_ = read_byte_merges(file);
  if (const json decoder = optional_member(file, "decoder"); !decoder.is_null())
    decoder_ = decoder_step(decoder);
}

std::shared_ptr<const TokenTable> TokenTable::parse(const std::string& text, const std::string& file) {
  try {
    const json parsed = parse_json<json>(text);
    return std::shared_ptr<const TokenTable>(new TokenTable(parsed, parsed.dump()));
  } catch (const json::exception& error) {
    refuse(file, fmt::format("it is no tokenizer.json: {}", printable(error.what())));
  } catch (const ArgumentError& error) {
    refuse(file, error.what());
  }
}

std::shared_ptr<const TokenTable> TokenTable::load(const std::string& file) {
  return parse(read_file(file), file);
}

std::string TokenTable::decode(std::span<const std::int64_t> ids) const {
  // The limit follows the input: no decoder of a real tokenizer multiplies a text by 64.
  constexpr std::size_t factor = 64, any = std::size_t{64} << 10;
  Tokens all;
  for (const auto id : ids)
    if (id >= 0 && id < std::ssize(tokens_)) all.push_back(tokens_[std::size_t(id)]);
  if (decoder_) decoder_(all, factor * count_bytes(all) + any);
  return fmt::format("{}", fmt::join(all, decoder_ ? "" : " "));
}

std::int64_t TokenTable::characters(std::int32_t id) const {
  // Decodes the token after another one: decoders can strip the space of the first token.
  const std::vector<std::int64_t> after_another{id == 0 ? 1 : 0, id};
  const auto count = [](const std::string& text) {
    // Bytes 10xxxxxx continue a character of UTF-8.
    return std::ranges::count_if(text,
                                 [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; });
  };
  return count(decode(after_another)) - count(decode(std::span(after_another).first(1)));
}

std::string encode_byte_alphabet(std::string_view text) {
  std::string out;
  for (const char c : text) out += byte_alphabet()[static_cast<unsigned char>(c)];
  return out;
}

std::string decode_byte_alphabet(std::string_view text) {
  static const auto bytes = [] {
    std::map<std::string, char, std::less<>> out;
    for (std::size_t byte = 0; byte < 256; ++byte)
      out.emplace(byte_alphabet()[byte], static_cast<char>(byte));
    return out;
  }();
  std::string out;
  while (!text.empty()) {
    // Characters of the alphabet have at most two bytes; other text passes byte by byte.
    const bool two = (static_cast<unsigned char>(text[0]) & 0xe0u) == 0xc0u && text.size() > 1;
    const auto character = text.substr(0, two ? 2 : 1);
    const auto found = bytes.find(character);
    out += found != bytes.end() ? std::string_view(&found->second, 1) : character;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace fq::detail
