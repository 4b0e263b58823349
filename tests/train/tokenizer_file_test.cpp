#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"

namespace fq::tokenizer_file_test {
namespace {

using detail::TokenizerFile;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::string source(const std::string& name) {
  return std::string(FAKEQUANT_SOURCE_DIR) + "/tests/data/tokenizers/" + name;
}

/// tests/data/tokenizers/generate.py made the files and the answers, by the package tokenizers.
TEST(TokenizerFile, HasTheIdsOfThePackage) {
  std::ifstream in(source("ids.json"));
  const json answers = json::parse(in);
  ASSERT_EQ(answers.size(), 6U);
  for (const auto& [name, samples] : answers.items()) {
    const auto tokenizer = TokenizerFile::load(source(name + ".json"));
    for (const auto& sample : samples) {
      const auto text = sample["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, "text"), sample["ids"].get<Ids>()) << name << ": " << text;
      EXPECT_EQ(tokenizer->decode(sample["ids"].get<std::vector<std::int64_t>>()),
                sample["back"].get<std::string>())
          << name << ": " << text;
    }
    const auto again = TokenizerFile::parse(tokenizer->text(), "kept");
    EXPECT_EQ(again->tokens(), tokenizer->tokens());
    EXPECT_EQ(again->text(), tokenizer->text());
  }
}

/// Characters of tokens add up to those of the text, also where a character is in pieces.
TEST(TokenizerFile, CountsCharacters) {
  const std::string text = "The Größe of 中文字 and 😀";
  for (const char* name : {"byte_level.json", "llama.json"}) {
    const auto tokenizer = TokenizerFile::load(source(name));
    std::int64_t sum = 0;
    for (const auto id : tokenizer->encode(text, "text")) sum += tokenizer->characters(id);
    const bool blank_in_front = name == std::string("llama.json");
    EXPECT_EQ(sum, 22 + (blank_in_front ? 1 : 0)) << name;
  }
}

TEST(TokenizerFile, SaysWhatFills) {
  EXPECT_EQ(TokenizerFile::load(source("unigram.json"))->filling(), 0);
  EXPECT_EQ(TokenizerFile::load(source("byte_level.json"))->filling(), std::nullopt);
}

std::string refusal(const std::string& text) {
  try {
    (void)TokenizerFile::parse(text, "some.json");
  } catch (const FileError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

json small() {
  return json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string changed(const std::string& pointer, const json& value) {
  json file = small();
  file[json::json_pointer(pointer)] = value;
  return refusal(file.dump());
}

TEST(TokenizerFile, RefusesWhatIsNoTokenizer) {
  EXPECT_EQ(TokenizerFile::parse(small().dump(), "some.json")->encode("abba", "text"), (Ids{2, 1, 0}));
  const std::string whole = small().dump();
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(refusal(whole.substr(0, length)), HasSubstr("[tokenizer] some.json: it is no tokenizer.json"))
        << length;
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("it is no object with a \"model\""));
  EXPECT_THAT(refusal("{}"), HasSubstr("it has no \"model\""));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("more than 128 levels"));
  std::string nested = R"({"normalizer": )";
  for (int i = 0; i < 100; ++i) nested += R"({"type": "Sequence", "normalizers": [)";
  EXPECT_THAT(refusal(nested), HasSubstr("more than 128 levels"));
}

TEST(TokenizerFile, NamesWhatIsKnown) {
  EXPECT_THAT(changed("/model/type", "WordPiece"),
              HasSubstr("the model is of the type 'WordPiece': those of BPE, Unigram are read"));
  EXPECT_THAT(changed("/normalizer", {{"type", "Precompiled"}}),
              AllOf(HasSubstr("Precompiled"), HasSubstr("NFC")));
  EXPECT_THAT(changed("/pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}}),
              HasSubstr("none of those of GPT-2, Llama 3 and Qwen 2"));
  EXPECT_THAT(changed("/pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Removed"}}),
              HasSubstr("the behavior 'Removed'"));
  EXPECT_THAT(changed("/pre_tokenizer", {{"type", "Digits"}}),
              AllOf(HasSubstr("Digits"), HasSubstr("ByteLevel")));
  EXPECT_THAT(changed("/decoder", {{"type", "CTC"}}), AllOf(HasSubstr("CTC"), HasSubstr("Metaspace")));
  EXPECT_THAT(changed("/model/end_of_word_suffix", "</w>"), HasSubstr("\"end_of_word_suffix\""));
  EXPECT_THAT(changed("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", " "}}),
              HasSubstr("regular expressions are not read"));
}

TEST(TokenizerFile, RefusesAVocabularyThatIsNoWhole) {
  EXPECT_THAT(changed("/model/merges", {"a c"}),
              HasSubstr("merge 0 joins 'a' and 'c': 'c' is no token of the vocabulary"));
  EXPECT_THAT(changed("/model/merges", {"b a"}), HasSubstr("'ba' is no token of the vocabulary"));
  EXPECT_THAT(changed("/model/merges", {"abc"}), HasSubstr("merge 0 is no pair of tokens"));
  EXPECT_THAT(changed("/model/merges", 3), HasSubstr("\"merges\" of the model BPE is no list"));
  EXPECT_THAT(changed("/model/vocab/ab", 3), HasSubstr("no token has the id 2, and there are ids up to 3"));
  EXPECT_THAT(changed("/model/vocab/ab", 1), HasSubstr("the id 1 stands for"));
  EXPECT_THAT(changed("/model/vocab/ab", -1), HasSubstr("is no whole number from 0"));
  EXPECT_THAT(changed("/model/vocab/ab", 2e9), HasSubstr("is no whole number from 0"));
  EXPECT_THAT(changed("/model/vocab/ab", 2'000'000'000), HasSubstr("0 to 16777215 are read"));
  EXPECT_THAT(changed("/model/vocab/ab", "x"), HasSubstr("the id of 'ab'"));
  EXPECT_THAT(changed("/model/unk_token", "?"), HasSubstr("\"unk_token\" is '?', which is no token"));
  EXPECT_THAT(changed("/added_tokens", {{{"content", "a"}, {"id", 7}}}), HasSubstr("two ids, 0 and 7"));
  EXPECT_THAT(changed("/added_tokens", {{{"content", ""}, {"id", 3}}}), HasSubstr("empty \"content\""));
  EXPECT_THAT(changed("/padding", {{"pad_id", 9}}), HasSubstr("\"pad_id\" is 9, of 3 tokens"));
  const json scores = {{"type", "Unigram"}, {"vocab", {{"a", -1.0}, {"b"}}}};
  EXPECT_THAT(refusal(json{{"model", scores}}.dump()), HasSubstr("token 1 of \"vocab\" is no pair"));
  const json unknown = {
      {"type", "Unigram"}, {"unk_id", 5}, {"vocab", json::array({{"a", -1.0}, {"b", -2.0}})}};
  EXPECT_THAT(refusal(json{{"model", unknown}}.dump()), HasSubstr("\"unk_id\" is 5, of 2 tokens"));
}

TEST(TokenizerFile, RefusesTextsWithoutTokens) {
  const auto tokenizer = TokenizerFile::parse(small().dump(), "some.json");
  const auto message = [&](const std::string& text) {
    try {
      (void)tokenizer->encode(text, "input.txt");
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message("abc"), HasSubstr("[tokenizer] input.txt: 'c' is none of the tokens"));
  EXPECT_THAT(message("ab\xff"), HasSubstr("byte 0xff at offset 2 is no UTF-8"));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>{-1, 0, 3, 1}), "ab");
}

}  // namespace
}  // namespace fq::tokenizer_file_test
