#include "fakequant/cli/network.h"

#include <fmt/format.h>

#include "fakequant/cli/class_names.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/task.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_kind.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/network_identity.h"
#include "fakequant/train/loop/detail/sample_notes.h"

namespace fq::cli {
namespace {

using nlohmann::json;

void check_class_names(const Network& network) {
  const auto names = class_names(network);
  FQ_CHECK(names.empty() || std::int64_t(names.size()) == named_outputs(network), "class_names",
           "{} names are given for {} classes", names.size(), named_outputs(network));
}

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

}  // namespace

std::int64_t Network::classes() const {
  return identity.value("dense", false) ? 0 : fq::detail::whole_value<std::int64_t>(identity.at("classes"));
}

Shape Network::input_shape() const { return fq::detail::input_shape_of(identity, 1); }

Network make_network(const Flags& flags, const Dataset& data, std::uint64_t seed) {
  const auto spec = ModelSpec::load(flags.required("model"), flags.text("model-options"));
  check_ids(spec, flags, data);
  const Task task = read_task(flags);
  const std::int64_t outputs = outputs_for(task, data);
  Network network{nullptr, fq::detail::network_identity(spec, data.sample_shape(), outputs)};
  if (dense_labels(task, data)) network.identity["dense"] = true;
  network.module = fq::detail::first_network(network.identity, spec, seed);
  take_task(network, flags);
  take_tokenizer(network, data, flags.required("data"), "train");
  if (takes_classes(task.loss)) take_class_names(network, data, "train");
  const std::string doubt = fq::detail::take_sample_notes(network.identity, data, "train");
  if (!doubt.empty()) log(LogLevel::warning, doubt);
  return network;
}

Network make_network(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes) {
  Network network{nullptr, fq::detail::network_identity(spec, sample_shape, classes)};
  network.module = fq::detail::first_network(network.identity, spec, 0);
  const auto graph = trace(*network.module, network.input_shape());
  const Shape& output = graph.values.at(static_cast<std::size_t>(graph.output)).shape;
  if (classes == 0 && output.size() == 2) network.identity["classes"] = output[1];
  return network;
}

Network make_network(const ImportedModel& model, const std::string& file) {
  const std::int64_t classes = model.output_shape.size() == 1 ? model.output_shape[0] : 0;
  try {
    return {model.build(), fq::detail::network_identity(model.spec, model.sample_shape, classes)};
  } catch (const FileError& error) {
    throw FileError(file, error.dataset(), fmt::format("{} (in {})", error.what(), file));
  }
}

Network load_network(const std::string& named) {
  const std::string checkpoint = read_checkpoint_path(named);
  if (fq::detail::file_kind(checkpoint) == "an ONNX model")
    throw FileError(
        checkpoint, "",
        fmt::format("[load_checkpoint] {} is an ONNX model: make a checkpoint of it by fakequant import "
                    "{} -o FILE",
                    checkpoint, checkpoint));
  if (fq::detail::file_kind(checkpoint) == "an HDF5 file")
    throw FileError(
        checkpoint, "",
        fmt::format("[load_checkpoint] {} is an HDF5 file and no checkpoint, or its first bytes are damaged: "
                    "give a checkpoint, such as fakequant train writes, and a data set by --data",
                    checkpoint));
  return load_network(load_checkpoint(checkpoint), checkpoint);
}

Network load_network(const StateDict& state, const std::string& path) {
  Network network;
  try {
    network = rebuild(identity_of(state, path));
  } catch (const json::exception& error) {
    throw FileError(
        path, "model",
        fmt::format("[load_checkpoint] {} does not say what model it is of: {}", path, error.what()));
  } catch (const ArgumentError& error) {
    throw FileError(path, "model",
                    fmt::format("[load_checkpoint] the model in {} cannot be built: {}", path, error.what()));
  }
  load_model_state(*network.module, state, path);
  return network;
}

json identity_of(const StateDict& state, const std::string& path) {
  const json identity = state.has_attribute("model") ? state.attribute("model") : json();
  if (!identity.is_object())
    throw FileError(
        path, "model",
        fmt::format("[load_checkpoint] {} does not say what model it is of, by an attribute 'model'", path));
  return identity;
}

Network rebuild(const json& identity) {
  Network network{nullptr, identity};
  check_class_names(network);
  const QuietLog said_when_it_was_quantized;
  network.module = fq::detail::network_again(identity);
  return network;
}

void save_network(const Network& network, const std::string& path) {
  save_checkpoint(path, model_state(*network.module, network.identity));
}

std::size_t fold_network(Network& network) {
  network.identity["folded"] = true;
  return fold_batch_norm(*network.module, network.input_shape()).size();
}

void quantize_network(Network& network, const nlohmann::json& json, const QuantConfig& config) {
  network.identity["quantization"] = json;
  static_cast<void>(quantize(*network.module, config, network.input_shape()));
}

void stand_in_ranges(Network& network) {
  for (const auto& entry : named_quantizers(*network.module)) {
    auto& quantizer = *entry.quantizer;
    if (quantizer.descriptor().needs_amax() && !quantizer.amax().defined())
      quantizer.set_amax(Tensor::scalar(1));
  }
}

void check_not_compressed(const Network& network, const std::string& function,
                          const std::string& checkpoint) {
  FQ_CHECK(!is_compressed(*network.module), function,
           "{} is compressed: give the checkpoint that it was made from, or make floats of its codes by "
           "fakequant compress --undo {} -o FILE",
           checkpoint, checkpoint);
}

void check_classifies(const Network& network, const std::string& function) {
  FQ_CHECK(network.classes() >= 2 && takes_classes(task_of(network).loss), function,
           "the network does not tell classes of samples apart, which is what is compared here: its last "
           "layer, '{}', gives other than a number for each class",
           network.identity.at("model").at("nodes").back().value("name", std::string()));
}

void check_fits(const Network& network, const Dataset& data, const std::string& function) {
  const auto shape = fq::detail::whole_values<std::int64_t>(network.identity.at("sample_shape"));
  FQ_CHECK(data.sample_shape() == shape, function,
           "the samples are {}, the network takes {}: give other --data or another network",
           to_string(data.sample_shape()), to_string(shape));
  const bool classifies = takes_classes(task_of(network).loss) && network.classes() != 1;
  FQ_CHECK(!classifies || data.classes() <= network.classes(), function,
           "the data has {} classes, the network {} outputs: give other --data or another network",
           data.classes(), network.classes());
}

}  // namespace fq::cli
