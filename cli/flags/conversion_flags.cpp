#include "fakequant/cli/flags/conversion_flags.h"

#include <algorithm>

#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/class_names.h"
#include "fakequant/train/data/writer/split.h"

namespace fq::cli {

void add_conversion_flags(FlagSet& set, bool numbers) {
  set.group("Data set")
      .output("output,o", "FILE", "the data set to write (HDF5)", kind::data_set)
      .value("test", "SHARE", "of the samples, drawn for the group test; of classes as large a share of each",
             "0.2")
      .value("val", "SHARE", "of the samples, drawn for the group val", "0")
      .value("seed", "NUMBER", "of the draw", "0")
      .value("classes", "LIST", "what classes are called, in the order of their labels, with commas")
      .value(
          "like", "FILE",
          "another data set that this one is to be like: its classes in their order, size, scale, mean and "
          "deviation, columns, words");
  if (!numbers) return;
  set.value("scale", "NUMBER",
            "what the network sees is the stored value times this (default: of images 1/255 for bytes and "
            "1/65535 for 16 bits)")
      .toggle("normalize",
              "the network sees values less the mean, by the deviation, of their channel over the training "
              "samples");
}

void add_plain_flags(FlagSet& set) {
  set.group("General")
      .toggle("help,h", "this text")
      .toggle("json", "one JSON object a line on standard output, for machines");
  if (set.writes()) set.toggle("force", "replace files of another kind than those that are written");
}

std::optional<fq::detail::LikeData> like_of(const Flags& flags) {
  if (flags.text("like").empty()) return std::nullopt;
  return fq::detail::read_like(flags.text("like"));
}

std::vector<std::string> given_class_names(const Flags& flags) {
  FQ_CHECK(flags.text("classes").empty() || flags.text("like").empty(), flags.command(),
           "--classes and --like both name classes: give one of them");
  if (const auto like = like_of(flags)) return like->classes;
  auto names = fq::detail::split_names(flags.text("classes"));
  for (const auto& name : names)
    FQ_CHECK(std::ranges::count(names, name) == 1, flags.command(), "--classes names '{}' more than once",
             name);
  return names;
}

std::vector<std::string> class_names_of(const fq::detail::Labels& labels) {
  if (!labels.class_names.empty() || labels.task != fq::detail::Task::classes) return labels.class_names;
  std::vector<std::string> names;
  for (std::int64_t c = 0; c <= std::ranges::max(labels.values.to_vector<std::int64_t>()); ++c)
    names.push_back(std::to_string(c));
  return names;
}

char delimiter_of(const Flags& flags) {
  const std::string text = flags.text("delimiter");
  if (text == "auto") return 0;
  if (text == "tab" || text == "\\t") return '\t';
  FQ_CHECK(text.size() == 1 && text != "\"" && text != "\n" && text != "\r", flags.command(),
           "--delimiter is '{}': give one character, tab or auto", text);
  return text[0];
}

std::vector<std::uint8_t> groups_of(const Flags& flags, const fq::detail::Labels& labels, std::int64_t count,
                                    bool test_elsewhere) {
  const fq::detail::SplitShares shares{
      .validation = flags.number("val", 0, 1),
      .test = test_elsewhere && !flags.given("test") ? 0 : flags.number("test", 0, 1),
      .seed = std::uint64_t(flags.integer("seed", 0, std::int64_t{1} << 53))};
  FQ_CHECK(shares.validation + shares.test <= 1, flags.command(),
           "--val is {} and --test is {}: give no more than 1 together", shares.validation, shares.test);
  return split_samples(labels, count, shares);
}

}  // namespace fq::cli
