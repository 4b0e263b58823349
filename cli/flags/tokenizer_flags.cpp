#include "fakequant/cli/flags/tokenizer_flags.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"
#include "fakequant/train/data/writer/vocabulary.h"

namespace fq::cli {

using fq::detail::Tokenizer;
using fq::detail::TokenizerFile;
using fq::detail::TokenUnit;

void add_tokenizer_flags(FlagSet& set) {
  set.value(
         "tokens", "NAME",
         "bytes (257 ids: 0 for nothing, byte + 1), words (0 for nothing, 1 for others) or, with --windows, "
         "characters (default: bytes, with --windows characters)")
      .value("vocabulary", "WORDS", "ids of words, the most frequent of the training texts", "20000")
      .value(
          "tokenizer", "FILE",
          "a tokenizer.json, as the package tokenizers writes it: BPE of bytes as GPT-2 has, BPE or Unigram "
          "as sentencepiece makes them");
}

std::string unit_of(const Flags& flags, const std::string& fallback) {
  return flags.given("tokens") ? flags.choice("tokens", {"bytes", "words", "characters"}) : fallback;
}

std::optional<Tokenizer> given_tokenizer(const Flags& flags) {
  std::optional<Tokenizer> like;
  if (flags.given("like")) {
    like = fq::detail::read_tokenizer(flags.text("like"));
    FQ_CHECK(!flags.given("tokens") || flags.text("tokens") == like->unit_name(), flags.command(),
             "--like {} has {} as tokens: leave --tokens out", flags.text("like"), like->unit_name());
  }
  if (!flags.given("tokenizer")) return like;
  const std::string path = flags.text("tokenizer");
  for (const char* other : {"tokens", "vocabulary"})
    FQ_CHECK(!flags.given(other), flags.command(), "--tokenizer says what tokens are: leave --{} out", other);
  Tokenizer own(TokenizerFile::load(path));
  FQ_CHECK(!like || like->vocabulary() == own.vocabulary(), flags.command(),
           "--like {} has {} {}, --tokenizer {} {} others: leave one out", flags.text("like"), like->size(),
           like->unit_name(), path, own.size());
  return own;
}

}  // namespace fq::cli
