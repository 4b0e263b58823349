#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/conversion.h"
#include "fakequant/cli/flags/limits.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/class_folders.h"
#include "fakequant/train/data/reader/images/image_source.h"

namespace fq::cli {
namespace {

using fq::detail::FolderListing;
using fq::detail::ImageForm;
using fq::detail::ImageSource;
using fq::detail::one_line_name;
using nlohmann::ordered_json;

constexpr std::size_t kNamed = 10;  // of those left out: JSON has more
constexpr std::size_t kInJson = 1000;
constexpr std::int64_t kWidest = 1 << 15;

bool read_side(std::string_view text, std::int64_t& side) {
  double value = 0;
  if (!read_number(text, value) || value != std::int64_t(value) || value < 1 || value > kWidest) return false;
  side = std::int64_t(value);
  return true;
}

void take_size(const Flags& flags, ImageForm& form) {
  const std::string text = flags.text("size");
  if (text.empty()) return;
  const auto cross = std::min(text.find('x'), text.size());
  const bool square = cross == text.size();
  const bool read = read_side(text.substr(0, cross), form.width) &&
                    read_side(square ? text : text.substr(cross + 1), form.height);
  FQ_CHECK(read, flags.command(),
           "--size is '{}': give pixels from 1 to {}, as 32, or width and height, as 64x48", text, kWidest);
}

ImageForm form_of(const Flags& flags) {
  ImageForm form;
  take_size(flags, form);
  const std::string fit = flags.choice("fit", {"crop", "pad", "stretch"});
  form.fit = fit == "crop"  ? fq::detail::Fit::crop
             : fit == "pad" ? fq::detail::Fit::pad
                            : fq::detail::Fit::stretch;
  if (flags.given("resize")) {
    form.short_side = flags.integer("resize", 1, kWidest);
    FQ_CHECK(form.width > 0 && fit == "crop", flags.command(),
             "--resize is of the shorter side, before the middle of --size is taken: give --size, and no "
             "other --fit");
    FQ_CHECK(form.short_side >= std::max(form.width, form.height), flags.command(),
             "--resize {} is less than --size {}: give that or more", form.short_side, flags.text("size"));
  }
  const std::string channels = flags.choice("channels", {"auto", "1", "3"});
  form.channels = channels == "auto" ? 0 : channels == "1" ? 1 : 3;
  if (const auto like = like_of(flags); like && like->sample.size() == 3) {
    if (form.width == 0) form.width = like->sample[2], form.height = like->sample[1];
    if (form.channels == 0) form.channels = like->sample[0] == 1 ? 1 : 3;
  }
  form.bits = flags.choice("bits", {"8", "16"}) == "16" ? 16 : 8;
  return form;
}

std::vector<std::string> endings(bool all) {
  auto names = fq::detail::image_endings();
  const auto& others = fq::detail::other_image_endings();
  if (all) names.insert(names.end(), others.begin(), others.end());
  return names;
}

/// Images of formats that are not read are listed too, so that they are named.
FolderListing listed(const Flags& flags, const std::string& folder) {
  FolderListing listing = fq::detail::list_folder(folder, endings(true), given_class_names(flags));
  if (listing.empty_classes.empty()) return listing;
  const std::string names = fmt::format("{}", fmt::join(listing.empty_classes, ", "));
  if (flags.on("strict"))
    throw FileError(folder, "",
                    fmt::format("[{}] {} has folders without an image: {}", flags.command(), folder, names));
  return listing;
}

std::vector<std::string> notes_of(const FolderListing& listing) {
  std::vector<std::string> notes;
  if (!listing.empty_classes.empty())
    notes.push_back(one_line_name(
        fmt::format("folders without an image are no classes: {}", fmt::join(listing.empty_classes, ", "))));
  if (listing.others > 0)
    notes.push_back(fmt::format("{} files of other kinds are left alone", listing.others));
  return notes;
}

void print_skipped(const ImageSource& images, ordered_json& result, Output& output) {
  const auto& skipped = images.skipped();
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < std::min(skipped.size(), kInJson); ++i) {
    if (i < kNamed)
      output.line(one_line_name(fmt::format("left out: {} {}", skipped[i].path, skipped[i].reason)));
    list.push_back({{"path", skipped[i].path}, {"reason", skipped[i].reason}});
  }
  if (skipped.size() > kNamed)
    output.line(fmt::format("and {} more: --json names them", skipped.size() - kNamed));
  result["skipped"] = std::move(list);
  if (images.narrowed() > 0)
    output.line(fmt::format("note: {} images have 16 bits a sample and are kept as 8: --bits 16 keeps all",
                            images.narrowed()));
  result["narrowed"] = images.narrowed();
}

}  // namespace

FlagSet from_images_flags() {
  FlagSet set(
      "dataset from-images",
      "Makes a data set of a folder of PNG and JPEG images, in a folder for each class, and that below "
      "train, val and test, if they are there.",
      "FOLDER -o FILE [flags]");
  set.group("Images")
      .argument("folder", "FOLDER", "FOLDER/CLASS/..; images right in FOLDER have no labels")
      .value("size", "PIXELS",
             "of all images: 32, or width and height, 64x48 (default: of --like, or as they are, all alike)")
      .value("fit", "NAME",
             "images of another shape: crop (the middle), pad (black around) or stretch (both sides for "
             "themselves)",
             "crop")
      .value("resize", "PIXELS",
             "of the shorter side, before the middle of --size is taken (default: what covers it)")
      .value("channels", "NUMBER", "1: grey, 3: colour, auto: as --like, or 1 if all images are grey", "auto")
      .value("bits", "NUMBER", "of a sample: 8, or 16, kept as floats", "8")
      .toggle("strict", "an image that cannot be read, or a folder without one, is an error, not left out")
      .value("threads", "THREADS", "that decode (default: OMP_NUM_THREADS, or every core)");
  add_conversion_flags(set, true);
  add_plain_flags(set);
  return set;
}

ordered_json from_images(const Flags& flags, Output& output) {
  if (flags.given("threads")) use_threads(int(flags.integer("threads", 1, kMostThreads)));
  const ImageForm form = form_of(flags);
  const FolderListing listing = listed(flags, flags.required("folder"));
  std::vector<std::string> paths;
  std::vector<std::int64_t> labels;
  Converting part;
  for (const auto& file : listing.files) {
    paths.push_back(file.path);
    labels.push_back(file.label);
    if (listing.split) part.groups.push_back(file.group);
  }
  if (!listing.classes.empty())
    part.labels = {fq::detail::Task::classes, Tensor::from(labels, {std::int64_t(labels.size())}),
                   listing.classes};
  const GracefulStop graceful;
  const ConversionBar survey("looking at images", std::ssize(paths), output);
  auto images = std::make_unique<ImageSource>(
      std::move(paths),
      fq::detail::ImageSourceOptions{.form = form, .strict = flags.on("strict"), .survey = survey});
  const ImageSource& source = *images;
  part.samples = std::move(images);
  std::vector<Converting> parts;
  parts.push_back(std::move(part));
  ordered_json result = write_converted(flags, output, parts, {}, notes_of(listing));
  print_skipped(source, result, output);
  return result;
}

}  // namespace fq::cli
