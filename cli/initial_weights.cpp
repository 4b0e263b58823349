#include "fakequant/cli/initial_weights.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/task.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/train/data/hdf5_dataset.h"

namespace fq::cli {
namespace {

constexpr std::size_t kMostTold = 8;

std::string told(const std::vector<std::string>& names) {
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::ptrdiff_t(std::min(names.size(), kMostTold)));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kMostTold ? ", .." : "");
}

Network new_network(const Flags& flags, const std::string& group) {
  Hdf5DatasetOptions options;
  options.split = group;
  options.may_lack_labels = true;
  options.label_type = read_task(flags).labels();
  const Hdf5Dataset data(flags.required("data"), options);
  if (data.labels().defined()) return make_network(flags, data, 0);
  const auto spec = ModelSpec::load(flags.text("model"), flags.text("model-options"));
  return make_network(spec, data.sample_shape(), data.stated_classes());
}

}  // namespace

void add_init_flags(FlagSet& set, bool partial) {
  set.value(
         "init", "FILE",
         "weights for --model: a safetensors file with PyTorch's names, or its model.safetensors.index.json")
      .value("map", "FILE",
             "JSON of names in that file and names in the model, \"backbone.*\": \"*\"; null leaves one out");
  set.need({"map"}, "init");
  if (partial)
    set.need({"init-partial"}, "init")
        .toggle("init-partial", "take the weights that fit, and begin at random where there are none");
}

std::string take_weights(Network& network, const std::string& file, const Flags& flags) {
  WeightOptions options;
  options.partial = flags.knows("init-partial") && flags.on("init-partial");
  if (flags.given("map")) options.renames = read_weight_renames(flags.text("map"));
  const LoadedWeights found = load_weights(*network.module, file, options);
  std::string text = fmt::format("{} tensors of {}", found.set.size(), file);
  if (!found.kept.empty()) text += fmt::format("; at random: {}", told(found.kept));
  if (!found.unused.empty()) text += fmt::format("; left out: {}", told(found.unused));
  return text;
}

std::string init_weights(Network& network, const Flags& flags) {
  if (!flags.given("init")) return {};
  return take_weights(network, flags.text("init"), flags);
}

Start starting_network(const Flags& flags, const std::string& group, const PlannedFiles& planned) {
  const bool checkpoint = flags.given("checkpoint"), model = flags.given("model");
  FQ_CHECK(!checkpoint || !(model || flags.given("init")), flags.command(),
           "a checkpoint was given, which has its model and weights: leave out --model and --init, or the "
           "checkpoint");
  Start start;
  if (!model) {
    FQ_CHECK(!flags.given("init"), flags.command(),
             "--init has weights and no network: give --model FILE|NAME too");
    start.network = planned.network(flags.required("checkpoint"));
    return start;
  }
  FQ_CHECK(flags.given("init"), flags.command(),
           "--model alone is a network without weights: give --init FILE too, or a checkpoint");
  start.network = new_network(flags, group);
  start.initialised = init_weights(*start.network, flags);
  return start;
}

}  // namespace fq::cli
