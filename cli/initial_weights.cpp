#include "fakequant/cli/initial_weights.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/data.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/data/hdf5_dataset.h"

namespace fq::cli {
namespace {

/// Returns true if the first layer reads the samples as ids.
bool takes_ids(const ModelSpec& spec) { return spec.nodes().front().type == "embedding"; }

// An embedding looks up rows by ids. Other samples would be cut to integers.
void check_ids(const ModelSpec& spec, const std::string& model, const std::string& path, const Dataset& data,
               const std::string& command) {
  FQ_CHECK(!takes_ids(spec) || data.sample_shape().size() == 1, command,
           "the model {} takes token ids, and samples of {} are {}: use a data set of texts, which fakequant "
           "dataset from-text makes, or another model",
           model, path, to_string(data.sample_shape()));
}

constexpr std::size_t kMostShown = 8;

std::string shortened_list(const std::vector<std::string>& names) {
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::ptrdiff_t(std::min(names.size(), kMostShown)));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kMostShown ? ", .." : "");
}

ModelSpec model_spec(const ModelOptions& options) {
  return ModelSpec::load(*options.model, options.model_options.value_or(""));
}

// Builds a model for data that may have no labels: calibration needs none. The number of classes is then the
// one that the file states.
Network new_network(const ModelOptions& options, const TaskText& task, const std::string& path,
                    const std::string& group, const std::string& command) {
  Hdf5DatasetOptions reading;
  reading.split = group;
  reading.may_lack_labels = true;
  reading.label_type = parse_task(task, command).labels();
  const Hdf5Dataset data(path, reading);
  if (data.labels().defined()) return make_network(options, task, data, path, 0, command);
  return Network::create(model_spec(options), data.sample_shape(), data.stated_classes());
}

}  // namespace

Network load_network(const std::string& path) { return Network::load(read_checkpoint_path(path)); }

void check_not_compressed(const Network& network, const std::string& function,
                          const std::string& checkpoint) {
  FQ_CHECK(!is_compressed(network.module()), function,
           "{} is compressed. Use the checkpoint before compression, or restore float weights by "
           "fakequant compress --undo {} -o FILE",
           checkpoint, checkpoint);
}

std::string network_help() {
  return fmt::format("a model file (models/*.json), or built in: {}", fmt::join(builtin_models(), ", "));
}

void add_model_flag(FlagSet& set, ModelOptions& options) {
  set.value(options.model, "model,m", "FILE|NAME", network_help());
}

void add_init_flags(FlagSet& set, ModelOptions& options, bool partial) {
  set.need({"model-options"}, "model").need({"map"}, "init");
  set.value(options.model_options, "model-options", "JSON",
            "options of a built-in model, as {\"widths\": [16, 32, 32]}, or {\"signals\": true} for [C, L]")
      .value(
          options.init, "init", "FILE",
          "weights for --model: a safetensors file with PyTorch's names, or its model.safetensors.index.json")
      .value(options.map, "map", "FILE",
             "JSON of names in that file and names in the model, \"backbone.*\": \"*\"; null leaves one out");
  if (partial)
    set.need({"init-partial"}, "init")
        .toggle(options.init_partial, "init-partial",
                "copy the weights that fit, start the others at random");
}

Network make_network(const ModelOptions& options, const TaskText& task_text, const Dataset& data,
                     const std::string& path, std::uint64_t seed, const std::string& command) {
  const auto spec = model_spec(options);
  check_ids(spec, *options.model, path, data, command);
  const Task task = parse_task(task_text, command);
  Network network = Network::create(Identity{.model = spec,
                                             .sample_shape = data.sample_shape(),
                                             .classes = task_outputs(task, data),
                                             // Outputs and their axes follow from the labels of the data set.
                                             .dense = dense_labels(task, data)},
                                    seed);
  take_task(network, task_text, command);
  take_tokenizer(network, data, path, command);
  if (takes_classes(task.loss)) take_class_names(network, data, command);
  take_sample_notes(network, data, command);
  return network;
}

// The summary names tensors that stay at their random values, because they are usually a mistake in --map.
std::string take_weights(Network& network, const std::string& file, const std::optional<std::string>& map,
                         bool partial) {
  WeightOptions options;
  options.partial = partial;
  if (map) options.renames = read_weight_renames(*map);
  const LoadedWeights found = load_weights(network.module(), file, options);
  std::string text = fmt::format("{} tensors of {}", found.set.size(), file);
  if (!found.kept.empty()) text += fmt::format("; at random: {}", shortened_list(found.kept));
  if (!found.unused.empty()) text += fmt::format("; left out: {}", shortened_list(found.unused));
  return text;
}

std::string init_weights(Network& network, const ModelOptions& options) {
  return options.init ? take_weights(network, *options.init, options.map, options.init_partial) : "";
}

Start starting_network(const std::string& checkpoint, const ModelOptions& options, const TaskText& task,
                       const std::string& data, const std::string& group, const PlannedFiles& planned,
                       const std::string& command) {
  FQ_CHECK(checkpoint.empty() || !(options.model || options.init), command,
           "a checkpoint was given, which has its model and weights: leave out --model and --init, or the "
           "checkpoint");
  Start start;
  if (!options.model) {
    FQ_CHECK(!options.init, command, "--init has weights and no network: use --model FILE|NAME too");
    check_given(checkpoint, "checkpoint", command);
    start.network = planned.network(checkpoint);
    return start;
  }
  // Quantizing random weights has no use, so --init is required except in `train`.
  FQ_CHECK(options.init, command,
           "--model alone is a network without weights: use --init FILE too, or a checkpoint");
  check_given(data, "data", command);
  start.network = new_network(options, task, data, group, command);
  start.initialised = init_weights(*start.network, options);
  return start;
}

}  // namespace fq::cli
