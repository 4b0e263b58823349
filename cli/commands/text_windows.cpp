#include "fakequant/cli/commands/text_windows.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fakequant/cli/conversion.h"
#include "fakequant/cli/flags/tokenizer_flags.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/byte_stream.h"
#include "fakequant/train/data/reader/window_source.h"
#include "fakequant/train/data/writer/vocabulary.h"

namespace fq::cli {
namespace {

using fq::detail::Tokenizer;
using fq::detail::WindowSource;

constexpr std::size_t kMostBytes = std::size_t{1} << 28;

void check_flags(const Flags& flags) {
  for (const char* name :
       {"labels", "text", "label", "delimiter", "test-labels", "length", "classes", "seed"})
    FQ_CHECK(!flags.given(name), flags.command(),
             "--windows makes samples of one text, in its order, and labels of the tokens that follow: leave "
             "--{} out",
             name);
  FQ_CHECK(!flags.given("test-file") || !flags.given("test"), flags.command(),
           "--test-file is the test: leave --test out");
}

std::string text_of(const Flags& flags, const std::string& path) {
  std::error_code none;
  FQ_CHECK(!std::filesystem::is_directory(path, none), flags.command(),
           "--windows takes one file, {} is a folder: put its texts one behind another", path);
  return fq::detail::open_stream(path)->read_rest(kMostBytes);
}

Tokenizer tokenizer_of(const Flags& flags, const std::string& text, const std::string& path) {
  if (auto given = given_tokenizer(flags)) return *std::move(given);
  const auto unit = unit_of(flags, "characters");
  if (unit == "bytes") return {};
  if (unit == "characters")
    return Tokenizer(fq::detail::characters_of(text, path), fq::detail::TokenUnit::characters);
  fq::detail::WordCount count;
  count.add(text);
  return Tokenizer(count.vocabulary(flags.integer("vocabulary", 3, 1 << 24)));
}

void add_part(WindowSource& source, const Flags& flags, const std::string& path,
              const fq::detail::TextPart& part) {
  if (part.begin == part.end) return;
  const std::int64_t length = source.type().shape[0];
  FQ_CHECK(source.add(part) > 0, flags.command(),
           "{} has {} tokens for the group {}: windows of {} need {} or more, so give a longer text, smaller "
           "--windows or another --test or --val",
           path, part.end - part.begin, fq::detail::kGroups[part.group], length, length + 1);
}

/// The first tokens for training, then those for validation and, where no file has it, the test.
void add_groups(WindowSource& source, const Flags& flags, const std::string& path, std::int64_t tokens) {
  const double validation = flags.number("val", 0, 1), test = flags.given("test-file") ? 0
                                                              : flags.given("test")
                                                                  ? flags.number("test", 0, 1)
                                                                  : 0.1;
  FQ_CHECK(validation + test <= 1, flags.command(),
           "--val is {} and --test is {}: give no more than 1 together", validation, test);
  const std::int64_t length = source.type().shape[0], held_out = std::llround(test * double(tokens)),
                     validated = std::llround((validation + test) * double(tokens));
  const std::int64_t stride = flags.given("stride") ? flags.integer("stride", 1, length) : length;
  add_part(source, flags, path, {fq::detail::kTrain, 0, tokens - validated, stride});
  add_part(source, flags, path, {fq::detail::kValidation, tokens - validated, tokens - held_out, length});
  add_part(source, flags, path, {fq::detail::kTest, tokens - held_out, tokens, length});
}

}  // namespace

void add_window_flags(FlagSet& set) {
  set.group("One text, for networks that tell the next token")
      .value(
          "windows", "TOKENS",
          "of a sample: FILE is one text, cut into windows, and y is the token behind each; the last tenth, "
          "or --test of it, is the group test")
      .value("stride", "TOKENS", "from a window of the training to the next (default: as --windows)");
}

nlohmann::ordered_json from_text_windows(const Flags& flags, Output& output) {
  check_flags(flags);
  const std::int64_t length = flags.integer("windows", 1, 1 << 20);
  const std::string path = flags.required("file"), test_path = flags.text("test-file");
  const std::string text = text_of(flags, path);
  const std::string test = test_path.empty() ? "" : text_of(flags, test_path);
  const Tokenizer tokenizer = tokenizer_of(flags, text + test, path);
  auto tokens = tokenizer.encode_all(text, path);
  const auto of_text = std::int64_t(tokens.size());
  const auto of_test = tokenizer.encode_all(test, test_path);
  tokens.insert(tokens.end(), of_test.begin(), of_test.end());
  const auto all = std::int64_t(tokens.size());
  auto source = std::make_unique<WindowSource>(path, std::move(tokens), length);
  add_groups(*source, flags, path, of_text);
  if (!test_path.empty()) add_part(*source, flags, test_path, {fq::detail::kTest, of_text, all, length});
  FQ_CHECK(source->size() > 0, flags.command(), "{} has no tokens", path);
  std::vector<Converting> parts(1);
  parts[0].labels = source->labels(tokenizer.class_names());
  parts[0].groups = source->groups();
  parts[0].samples = std::move(source);
  auto result = write_converted(
      flags, output, parts, fq::detail::options_of(tokenizer),
      {fmt::format("{} tokens, a vocabulary of {} {}", all, tokenizer.size(), tokenizer.unit_name())});
  result["tokens"] = all;
  result["vocabulary"] = tokenizer.size();
  return result;
}

}  // namespace fq::cli
