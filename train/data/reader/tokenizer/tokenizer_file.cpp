#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/train/data/reader/byte_stream.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kLongestKept = 64;  // bytes of a piece whose tokens are remembered
constexpr std::size_t kMostKept = std::size_t{1} << 18;

json optional_member(const json& object, const char* name) {
  return object.contains(name) ? object[name] : json();
}

[[noreturn]] void refuse(const std::string& file, std::string why) {
  const std::string origin = "[tokenizer] ";
  if (why.starts_with(origin)) why.erase(0, origin.size());
  throw FileError(file, "", fmt::format("[tokenizer] {}: {}", file, why));
}

void check_utf8(std::string_view text, const std::string& path) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character c = first_character(text.substr(at));
    if (c.code == Utf8Character::none)
      refuse(path, fmt::format("byte {:#04x} at offset {} is no UTF-8: save the text as UTF-8",
                               static_cast<unsigned char>(text[at]), at));
    at += c.bytes.size();
  }
}

std::optional<std::int32_t> filling_of(const json& file, const TokenTable& table) {
  const json padding = optional_member(file, "padding");
  if (padding.is_object() && padding.contains("pad_id")) {
    const auto id = id_of(padding["pad_id"], "padding");
    FQ_CHECK(std::size_t(id) < table.tokens().size(), "tokenizer", "\"pad_id\" is {}, of {} tokens", id,
             table.tokens().size());
    return id;
  }
  for (const char* name : {"<pad>", "[PAD]", "<|pad|>"})
    if (const auto id = table.find(name)) return id;
  return std::nullopt;
}

/// Whose decoder reads GPT-2's alphabet, as llama.cpp's "gpt2" does.
std::vector<std::string> byte_merges_of(const json& file) {
  const json decoder = optional_member(file, "decoder"), merges = optional_member(file["model"], "merges");
  if (!decoder.is_object() || decoder["type"] != "ByteLevel" || !merges.is_array()) return {};
  std::vector<std::string> out;
  for (const json& merge : merges)
    out.push_back(merge.is_string() ? merge.get<std::string>()
                                    : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return out;
}

}  // namespace

TokenizerFile::TokenizerFile(const json& file, std::string text, std::string name)
    : text_(std::move(text)), file_(std::move(name)) {
  FQ_CHECK(file.is_object(), "tokenizer", "it is no object with a \"model\"");
  normalizer_ = read_normalizer(optional_member(file, "normalizer"));
  pre_tokenizer_ = read_pre_tokenizer(optional_member(file, "pre_tokenizer"));
  model_ = read_token_model(member(file, "model", "it"), table_);
  added_ = AddedTokens(optional_member(file, "added_tokens"), table_, normalizer_);
  decoder_ = read_decoder(optional_member(file, "decoder"));
  table_.check_whole();
  filling_ = filling_of(file, table_);
  byte_merges_ = byte_merges_of(file);
}

std::shared_ptr<const TokenizerFile> TokenizerFile::parse(const std::string& text, const std::string& file) {
  try {
    const json parsed = parse_json<json>(text);
    return std::shared_ptr<const TokenizerFile>(new TokenizerFile(parsed, parsed.dump(), file));
  } catch (const json::exception& error) {
    refuse(file, fmt::format("it is no tokenizer.json: {}", printable(error.what())));
  } catch (const ArgumentError& error) {
    refuse(file, error.what());
  }
}

std::shared_ptr<const TokenizerFile> TokenizerFile::load(const std::string& file) {
  return parse(open_stream(file)->read_rest(kMostBytes), file);
}

std::vector<std::int32_t> TokenizerFile::encode(std::string_view text, const std::string& path) const {
  check_utf8(text, path);
  std::vector<std::int32_t> ids;
  try {
    for (const Section& section : added_.cut(text, false))
      if (section.id >= 0)
        ids.push_back(section.id);
      else
        encode_section(normalizer_(std::string(section.text)), section.text.data() == text.data(), ids);
  } catch (const ArgumentError& error) {
    refuse(path, fmt::format("{} (the tokenizer is that of {})", error.what(), file_));
  }
  return ids;
}

void TokenizerFile::encode_section(std::string text, bool at_start, std::vector<std::int32_t>& ids) const {
  std::map<std::string, std::vector<std::int32_t>, std::less<>> known;
  for (const Section& section : added_.cut(text, true)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    const bool first = at_start && section.text.data() == text.data();
    for (const TextPiece& piece : pre_tokenizer_(std::vector{TextPiece{std::string(section.text), first}})) {
      if (piece.text.empty()) continue;
      if (piece.text.size() > kLongestKept || known.size() >= kMostKept) {
        model_->encode(piece.text, ids);
        continue;
      }
      const auto [found, added] = known.try_emplace(piece.text);
      if (added) model_->encode(piece.text, found->second);
      ids.insert(ids.end(), found->second.begin(), found->second.end());
    }
  }
}

std::string TokenizerFile::decode(std::span<const std::int64_t> ids) const {
  std::vector<std::string> all;
  for (const auto id : ids)
    if (id >= 0 && id < std::ssize(tokens())) all.push_back(table_.token(static_cast<std::int32_t>(id)));
  std::string text;
  for (const auto& part : decoder_(std::move(all))) text += part;
  return text;
}

std::int64_t TokenizerFile::characters(std::int32_t id) const {
  const std::vector<std::int64_t> behind_another{id == 0 ? 1 : 0, id};
  const std::vector<std::int64_t> alone{behind_another[0]};
  const auto count = [](const std::string& text) {
    return std::ranges::count_if(text,
                                 [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; });
  };
  return count(decode(behind_another)) - count(decode(alone));
}

}  // namespace fq::detail
