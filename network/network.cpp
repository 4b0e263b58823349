#include "fakequant/network/network.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq {
namespace {

[[noreturn]] void fail_to_build(const std::string& path, const std::exception& error) {
  throw FileError(path, "model",
                  fmt::format("[load_checkpoint] the model in {} cannot be built: {}", path, error.what()));
}

std::shared_ptr<Module> build(const Identity& identity, std::uint64_t seed) {
  BuildOptions options;
  options.seed = seed;
  options.dense = identity.dense;
  return build_model(identity.model, identity.sample_shape, identity.classes, options);
}

}  // namespace

Network::Network(std::shared_ptr<Module> module, Identity identity)
    : module_(std::move(module)), identity_(std::move(identity)) {}

Network Network::create(Identity identity, std::uint64_t seed) {
  auto module = build(identity, seed);
  Network out(std::move(module), std::move(identity));
  const QuietLog quiet;  // warnings were logged when the network was quantized
  // Folds before it places quantizers, in the order of `fold_and_quantize`.
  if (out.folded()) static_cast<void>(fold_batch_norm(out.module(), out.input_shape()));
  if (out.quantized())
    static_cast<void>(fq::quantize(out.module(), out.identity_.config(), out.input_shape()));
  return out;
}

Network Network::create(const ModelSpec& model, const Shape& sample_shape, std::int64_t classes,
                        std::uint64_t seed) {
  Identity identity{.model = model, .sample_shape = sample_shape, .classes = classes};
  auto module = build(identity, seed);
  Network out(std::move(module), std::move(identity));
  if (classes > 0) return out;
  // Outputs [N, classes] are one list of numbers per sample. Outputs with more axes have no class count.
  if (const Shape outputs = out.output_shape(); outputs.size() == 2) out.identity_.classes = outputs[1];
  return out;
}

Network Network::from_model(const ImportedModel& model, const std::string& file) {
  const std::int64_t classes = model.output_shape.size() == 1 ? model.output_shape[0] : 0;
  try {
    return {model.build(), {.model = model.spec, .sample_shape = model.sample_shape, .classes = classes}};
  } catch (const FileError& error) {
    throw FileError(file, error.dataset(), fmt::format("{} (in {})", error.what(), file));
  }
}

Network Network::load(const std::string& path) {
  // The reader of checkpoints would only report a wrong magic number. These two kinds of file have a better
  // remedy.
  const std::string kind = detail::file_kind(path);
  if (kind == "an ONNX model")
    throw FileError(path, "",
                    fmt::format("[load_checkpoint] {} is an ONNX model: make a checkpoint of it by "
                                "fakequant import {} -o FILE",
                                path, path));
  if (kind == "an HDF5 file")
    throw FileError(
        path, "",
        fmt::format(
            "[load_checkpoint] {} is an HDF5 file but not a checkpoint, or its first bytes are damaged: "
            "use a checkpoint of fakequant train, and a data set with --data",
            path));
  return from_state(load_checkpoint(path), path);
}

Network Network::from_state(const StateDict& state, const std::string& path) {
  // JSON and argument errors of the identity become FileError with the path, because the file is the cause.
  const auto built = [&] {
    try {
      return create(load_identity(state, path));
    } catch (const nlohmann::json::exception& error) {
      fail_to_build(path, error);
    } catch (const ArgumentError& error) {
      fail_to_build(path, error);
    }
  };
  Network out = built();
  load_model_state(out.module(), state, path);
  return out;
}

void Network::save(const std::string& path) const {
  save_checkpoint(path, model_state(*module_, identity_.to_json()));
}

Shape Network::input_shape(std::int64_t batch) const {
  Shape shape = identity_.sample_shape;
  shape.insert(shape.begin(), batch);
  return shape;
}

Shape Network::output_shape() const {
  // Traces with a batch of one. The trace computes shapes only.
  const auto graph = trace(*module_, input_shape());
  return graph.values.at(static_cast<std::size_t>(graph.output)).shape;
}

Task Network::task() const { return parse_task(identity_.task, "task"); }

Network Network::clone() const {
  // A diverged model would fail later in a place that does not name the cause.
  const StateDict values = model_state(*module_);
  if (const auto found = detail::find_not_finite(values.tensors()))
    throw NumericError(
        fmt::format("[model] {}: the model diverged: restore earlier values with load_state_dict, or train "
                    "again with a smaller learning rate",
                    found->text()));
  // Modules are not copyable, so the network is built again by its identity and gets the values.
  Network out = create(identity_);
  load_model_state(out.module(), values, "the model");
  return out;
}

Network Network::float_clone() const {
  Network out = clone();
  if (quantized()) static_cast<void>(disable_quantizer(out.module(), "*"));
  return out;
}

std::size_t Network::fold() {
  identity_.folded = true;
  return fold_batch_norm(*module_, input_shape()).size();
}

std::size_t Network::live_batch_norms() const {
  return static_cast<std::size_t>(std::ranges::count_if(module_->named_modules(), [](const auto& entry) {
    return dynamic_cast<const BatchNorm*>(entry.second) != nullptr;
  }));
}

void Network::quantize(const nlohmann::ordered_json& config, NetworkPart* part) {
  // Parsed before the module changes. The identity keeps the config as given.
  const QuantConfig rules = QuantConfig::from_json(config);
  if (part != nullptr)
    static_cast<void>(fq::quantize(*module_, rules, input_shape(), *part));
  else
    static_cast<void>(fq::quantize(*module_, rules, input_shape()));
  identity_.set_quantization(config);
}

OnnxModel Network::to_onnx(const OnnxExportOptions& options) const {
  return export_onnx(*module_, identity_.sample_shape, options);
}

Identity load_identity(const StateDict& state, const std::string& path) {
  const nlohmann::json identity = state.has_attribute("model") ? state.attribute("model") : nlohmann::json();
  if (!identity.is_object())
    throw FileError(
        path, "model",
        fmt::format("[load_checkpoint] {} has no attribute 'model' that describes the network", path));
  try {
    return Identity::from_json(identity);
  } catch (const ArgumentError& error) {
    fail_to_build(path, error);
  }
}

}  // namespace fq
