#include "fakequant/cli/augmentation.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/network/detail/named_values.h"

namespace fq::cli {
namespace {

using fq::detail::split_parts;

constexpr double kMostAmount = 1e9;

double read_amount(const std::string& text, const std::string& key, const std::string& command) {
  double value = 0;
  FQ_CHECK(read_number(text, value), command, "--augment {} needs a number, as {}=2", key, key);
  FQ_CHECK(0 <= value && value <= kMostAmount, command, "--augment {}={}: use a number of 0 or more", key,
           text);
  return value;
}

void set_change(AugmentOptions& options, const AugmentChange& change, const std::string& values,
                const std::string& command) {
  const auto parts = split_parts(values, ':');
  FQ_CHECK(parts.size() <= change.numbers.size(), command, "--augment {}={}: use {}={}", change.name, values,
           change.name, change.help);
  for (std::size_t i = 0; i < parts.size(); ++i)
    options.*change.numbers[i].value = read_amount(parts[i], change.name, command);
}

void read_item(AugmentOptions& options, const std::string& item, const std::string& command) {
  const auto changes = augment_changes();
  std::vector<std::string> keys{"flip"};
  for (const auto& change : changes) keys.emplace_back(change.name);
  const auto equal = item.find('=');
  const std::string key = item.substr(0, equal);
  FQ_CHECK(std::ranges::find(keys, key) != keys.end(), command, "--augment has no '{}'{}", key,
           fq::detail::did_you_mean(key, keys));
  FQ_CHECK(equal != std::string::npos, command, "--augment {} needs a number, as {}=2", key, key);
  const std::string values = item.substr(equal + 1);
  if (key == "flip") {
    // "flip" is a switch on the command line, and a probability in the library. Any number but 0 mirrors half
    // of the samples.
    options.hflip = read_amount(values, key, command) == 0 ? 0 : 0.5;
    return;
  }
  const auto change = std::ranges::find_if(changes, [&](const auto& c) { return c.name == key; });
  set_change(options, *change, values, command);
}

/// Returns true if mixed labels are shares of the output classes.
/// mixup of a single output (yes or no, or a number) averages numbers instead.
bool mixes_classes(const Task& task, const Dataset& data) {
  return data.classes() > 0 && (takes_classes(task.loss) || task_outputs(task, data) > 1);
}

bool yes_or_no(const Task& task) { return task.loss.kind == "bce" || task.loss.kind == "focal"; }

void check_mixing(const AugmentOptions& options, const Task& task, const Dataset& data,
                  const std::string& command) {
  if (!options.mixes()) return;
  const Tensor labels = data.labels();
  // One label per sample has rank 1 for classes and up to rank 2 for numbers [N, K].
  const bool labels_positions = labels.defined() && labels.rank() > (takes_classes(task.loss) ? 1 : 2);
  FQ_CHECK(!labels_positions && task.loss.kind != "dice", command,
           "--augment mixup and cutmix mix labels of whole samples, and --data has a label for each "
           "position: leave them out");
  FQ_CHECK(!task.loss.ignore_index, command,
           "--augment mixup and cutmix make shares of classes, which have no label for --loss {},ignore={}",
           task.loss.kind, *task.loss.ignore_index);
  FQ_CHECK(options.cutmix == 0 || takes_classes(task.loss) || yes_or_no(task), command,
           "--augment cutmix requires classes, and --loss {} has numbers: use mixup", task.loss.kind);
}

void take_sampling(LoaderOptions& loader, const SamplingOptions& options, const Task& task,
                   const Dataset& data, const std::string& command) {
  loader.balanced = options.balanced;
  for (const auto& part :
       options.class_weights ? split_parts(*options.class_weights, ':') : std::vector<std::string>()) {
    double weight = 0;
    FQ_CHECK(read_number(part, weight) && weight >= 0, command,
             "--set loader.class_weights has '{}': use a number of 0 or more for each class, as 1:2:0.5",
             part);
    loader.class_weights.push_back(weight);
  }
  if (!loader.balanced && loader.class_weights.empty()) return;
  // Labels of bce and focal may be class indices. Samples can then be drawn by class too.
  const bool classes = one_class_each(task, data) || (yes_or_no(task) && data.classes() > 0);
  FQ_CHECK(classes, command,
           "--set loader.{} requires one class for each sample, and y of --data with --loss {} has no such "
           "classes: leave it out",
           loader.balanced ? "balanced" : "class_weights", task.loss.kind);
}

std::string augment_help() {
  std::vector<std::string> items;
  for (const auto& change : augment_changes())
    items.push_back(fmt::format("{}={}", change.name, change.help));
  return fmt::format("changes of training samples: {}", fmt::join(items, ", "));
}

}  // namespace

void add_augment_flag(FlagSet& set, SamplingOptions& options) {
  set.value(options.augment, "augment", "LIST", augment_help());
}

void add_sampling_settings(FlagSet& set, SamplingOptions& options) {
  set.toggle(options.balanced, "loader.balanced", "an epoch draws each class equally often")
      .value(options.class_weights, "loader.class_weights", "LIST",
             "an epoch draws samples of each class in proportion, as 1:2:0.5");
}

AugmentOptions read_augment(const std::string& list, const std::string& command) {
  AugmentOptions options;
  if (!list.empty())
    for (const auto& item : split_parts(list, ',')) read_item(options, item, command);
  // Checks ranges and combinations here, without data, so that an error comes before any file is read.
  naming_flags([&] { check(options); });
  return options;
}

void take_augmentation(LoaderOptions& loader, const SamplingOptions& options, const Task& task,
                       const Dataset& data, const std::string& command) {
  loader.augment = read_augment(options.augment, command);
  check_mixing(loader.augment, task, data, command);
  loader.number_labels = loader.augment.mixes() && !mixes_classes(task, data);
  take_sampling(loader, options, task, data, command);
}

}  // namespace fq::cli
