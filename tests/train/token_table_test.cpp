#include "fakequant/train/data/detail/token_table.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"

namespace fq::token_table_test {
namespace {

using detail::TokenTable;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

std::string source(const std::string& name) {
  return std::string(FAKEQUANT_SOURCE_DIR) + "/tests/data/tokenizers/" + name;
}

/// tests/data/tokenizers/generate.py made the files and the texts, by the package tokenizers.
TEST(TokenTable, DecodesLikeThePackage) {
  std::ifstream in(source("ids.json"));
  const json expected = json::parse(in);
  ASSERT_EQ(expected.size(), 6U);
  for (const auto& [name, samples] : expected.items()) {
    const auto table = TokenTable::load(source(name + ".json"));
    for (const auto& sample : samples)
      EXPECT_EQ(table->decode(sample["ids"].get<Ids>()), sample["back"].get<std::string>())
          << name << ": " << sample["text"];
    const auto again = TokenTable::parse(table->text(), "kept");
    EXPECT_EQ(again->tokens(), table->tokens());
    EXPECT_EQ(again->text(), table->text());
  }
}

/// Characters of tokens add up to the characters of the text, also if a character has several tokens.
TEST(TokenTable, CountsCharacters) {
  std::ifstream in(source("ids.json"));
  const json expected = json::parse(in);
  for (const char* name : {"byte_level", "llama"}) {
    const auto table = TokenTable::load(source(std::string(name) + ".json"));
    for (const auto& sample : expected[name]) {
      const auto text = sample["text"].get<std::string>();
      if (text.find("<") != text.npos || text.find("\u00bd") != text.npos || text.empty()) continue;
      std::int64_t sum = 0, characters = 0;
      for (const auto id : sample["ids"].get<Ids>()) sum += table->characters(std::int32_t(id));
      for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u ? 1 : 0;
      const bool leading_space = name == std::string("llama");
      EXPECT_EQ(sum, characters + (leading_space ? 1 : 0)) << name << ": " << text;
    }
  }
}

json small() {
  return json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string decoded(const json& decoder, const std::vector<std::string>& tokens) {
  json file = {{"model", {{"type", "WordLevel"}, {"vocab", json::object()}}}, {"decoder", decoder}};
  Ids ids;
  for (const auto& token : tokens) {
    auto& vocabulary = file["model"]["vocab"];
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
    ids.push_back(vocabulary[token].get<std::int64_t>());
  }
  return TokenTable::parse(file.dump(), "some.json")->decode(ids);
}

/// The package tokenizers gave the texts.
TEST(TokenTable, DecodesEachKind) {
  EXPECT_EQ(decoded(nullptr, {"a", "b", "a"}), "a b a");
  EXPECT_EQ(decoded({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
                    {"un", "##able", ".", "is", "n't"}),
            "unable. isn't");
  EXPECT_EQ(decoded({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}, {"un", "##able", "."}),
            "unable .");
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}, {"suffix", "</w>"}}, {"un", "able</w>", "to</w>"}), "unable to");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>", "<0xZZ>"}), "\u00e9<0xZZ>");
  EXPECT_EQ(decoded({{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 0}}, {"__a_", "b"}), "_a_b");
}

std::string error_text(const std::string& text) {
  try {
    (void)TokenTable::parse(text, "some.json");
  } catch (const FileError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string changed(const std::string& pointer, const json& value) {
  json file = small();
  file[json::json_pointer(pointer)] = value;
  return error_text(file.dump());
}

TEST(TokenTable, RejectsOtherTexts) {
  const std::string whole = small().dump();
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(error_text(whole.substr(0, length)),
                HasSubstr("[tokenizer] some.json: it is no tokenizer.json"))
        << length;
  EXPECT_THAT(error_text("[1, 2]"), HasSubstr("it is no object with a \"model\""));
  EXPECT_THAT(error_text("{}"), HasSubstr("it has no \"model\""));
  std::string nested = R"({"decoder": )";
  for (int i = 0; i < 100; ++i) nested += R"({"type": "Sequence", "decoders": [)";
  EXPECT_THAT(error_text(nested), HasSubstr("more than 128 levels"));
}

TEST(TokenTable, NamesTheSupportedKinds) {
  EXPECT_THAT(changed("/model/type", "Other"),
              AllOf(HasSubstr("'Other'"), HasSubstr("BPE, Unigram, WordPiece")));
  EXPECT_THAT(changed("/decoder", {{"type", "CTC"}}), AllOf(HasSubstr("CTC"), HasSubstr("Metaspace")));
  EXPECT_THAT(changed("/decoder", {{"type", "Metaspace"}, {"replacement", "ab"}}),
              HasSubstr("one character"));
}

TEST(TokenTable, RejectsAVocabularyWithHoles) {
  EXPECT_THAT(changed("/model/vocab/ab", 3),
              HasSubstr("no token has the id 2, allowed are vocabularies without holes"));
  EXPECT_THAT(changed("/model/vocab/ab", 1), HasSubstr("the id 1 belongs to"));
  EXPECT_THAT(changed("/model/vocab/ab", -1), HasSubstr("is not a whole number from 0"));
  EXPECT_THAT(changed("/model/vocab/ab", 2e9), HasSubstr("is not a whole number from 0"));
  EXPECT_THAT(changed("/model/vocab/ab", 2'000'000'000), HasSubstr("allowed are 0 to 16777215"));
  EXPECT_THAT(changed("/model/vocab/ab", "x"), HasSubstr("the id of 'ab'"));
  EXPECT_THAT(changed("/added_tokens", {{{"content", "a"}, {"id", 7}}}), HasSubstr("two ids, 0 and 7"));
  EXPECT_THAT(changed("/added_tokens", {{{"content", ""}, {"id", 3}}}), HasSubstr("empty \"content\""));
  const json scores = {{"type", "Unigram"}, {"vocab", {{"a", -1.0}, {"b"}}}};
  EXPECT_THAT(error_text(json{{"model", scores}}.dump()), HasSubstr("token 1 of \"vocab\" is no pair"));
}

/// A file of many steps that each multiply a text ends by name before it takes memory.
TEST(TokenTable, LimitsTheGrowthOfTexts) {
  json file = small();
  const json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}};
  file["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<json>(12, step)}};
  const auto table = TokenTable::parse(file.dump(), "some.json");
  EXPECT_THROW((void)table->decode(Ids{0, 1, 2}), ArgumentError);
  EXPECT_EQ(TokenTable::parse(small().dump(), "some.json")->decode(Ids{-1, 0, 3, 1}), "a b");
}

}  // namespace
}  // namespace fq::token_table_test
