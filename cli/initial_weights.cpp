#include "fakequant/cli/initial_weights.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/data.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/data/hdf5_dataset.h"

namespace fq::cli {
namespace {

/// Whether the first layer that reads samples reads them as ids.
bool takes_ids(const ModelSpec& spec) {
  const auto& nodes = spec.json().at("nodes");
  return !nodes.empty() && nodes.front().value("type", std::string()) == "embedding";
}

void check_ids(const ModelSpec& spec, const Flags& flags, const Dataset& data) {
  FQ_CHECK(
      !takes_ids(spec) || data.sample_shape().size() == 1, flags.command(),
      "the model {} takes token ids, and samples of {} are {}: give a data set of texts, which fakequant "
      "dataset from-text makes, or another model",
      flags.text("model"), flags.text("data"), to_string(data.sample_shape()));
}

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
  return Network::create(spec, data.sample_shape(), data.stated_classes());
}

}  // namespace

Network load_network(const std::string& path) { return Network::load(read_checkpoint_path(path)); }

void check_not_compressed(const Network& network, const std::string& function,
                          const std::string& checkpoint) {
  FQ_CHECK(!is_compressed(network.module()), function,
           "{} is compressed: give the checkpoint that it was made from, or make floats of its codes by "
           "fakequant compress --undo {} -o FILE",
           checkpoint, checkpoint);
}

Network make_network(const Flags& flags, const Dataset& data, std::uint64_t seed) {
  const auto spec = ModelSpec::load(flags.required("model"), flags.text("model-options"));
  check_ids(spec, flags, data);
  const Task task = read_task(flags);
  Network network = Network::create(Identity{.model = spec,
                                             .sample_shape = data.sample_shape(),
                                             .classes = task_outputs(task, data),
                                             .dense = dense_labels(task, data)},
                                    seed);
  take_task(network, flags);
  take_tokenizer(network, data, flags.required("data"), "train");
  if (takes_classes(task.loss)) take_class_names(network, data, "train");
  take_sample_notes(network, data, "train");
  return network;
}

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

std::string take_weights(Network& network, const std::string& file, const std::optional<std::string>& map,
                         bool partial) {
  WeightOptions options;
  options.partial = partial;
  if (map) options.renames = read_weight_renames(*map);
  const LoadedWeights found = load_weights(network.module(), file, options);
  std::string text = fmt::format("{} tensors of {}", found.set.size(), file);
  if (!found.kept.empty()) text += fmt::format("; at random: {}", told(found.kept));
  if (!found.unused.empty()) text += fmt::format("; left out: {}", told(found.unused));
  return text;
}

std::string init_weights(Network& network, const Flags& flags) {
  if (!flags.given("init")) return {};
  const bool partial = flags.knows("init-partial") && flags.on("init-partial");
  const auto map = flags.given("map") ? std::optional(flags.text("map")) : std::nullopt;
  return take_weights(network, flags.text("init"), map, partial);
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
