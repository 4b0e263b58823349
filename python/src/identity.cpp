#include "identity.h"

#include <utility>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/network_identity.h"
#include "fakequant/train/qat_preset.h"

namespace fq::python {
namespace {

using nlohmann::json;

Network rebuild(const json& identity) {
  const QuietLog said_when_it_was_quantized;
  return {fq::detail::network_again(identity), identity};
}

}  // namespace

Shape Network::input_shape(std::int64_t batch) const { return fq::detail::input_shape_of(identity, batch); }

Network network_of(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes,
                   std::uint64_t seed) {
  json identity = fq::detail::network_identity(spec, sample_shape, classes);
  auto module = fq::detail::first_network(identity, spec, seed);
  return {std::move(module), std::move(identity)};
}

Network make_network(const std::string& model, const Shape& sample_shape, std::int64_t classes,
                     const std::string& options, std::uint64_t seed) {
  return network_of(ModelSpec::load(model, options), sample_shape, classes, seed);
}

Network load_network(const std::string& path) {
  if (path.ends_with(".onnx")) {
    const ImportedModel file = import_onnx(load_onnx(path));
    return {file.build(),
            fq::detail::network_identity(file.spec, file.sample_shape,
                                         file.output_shape.size() == 1 ? file.output_shape[0] : 0)};
  }
  const StateDict state = load_checkpoint(path);
  Network out;
  try {
    out = rebuild(state.attribute("model"));
  } catch (const json::exception& error) {
    throw FileError(path, "model",
                    fmt::format("[load] {} does not say what model it is of: {}", path, error.what()));
  } catch (const ArgumentError& error) {
    throw FileError(path, "model",
                    fmt::format("[load] the model in {} cannot be built: {}", path, error.what()));
  }
  load_model_state(*out.module, state, path);
  return out;
}

Network copy_of(const Network& network) {
  const StateDict values = model_state(*network.module, network.identity);
  if (const auto found = fq::detail::find_not_finite(values.tensors()))
    throw NumericError(
        fmt::format("[model] {}: the model diverged: give it values of before by load_state_dict, or train "
                    "anew with a smaller learning rate",
                    found->text()));
  Network out = rebuild(network.identity);
  load_model_state(*out.module, values, "the model");
  return out;
}

void save_network(const Network& network, const std::string& path) {
  save_checkpoint(path, model_state(*network.module, network.identity));
}

void quantize_network(Network& network, const std::string& config, NetworkPart* part) {
  const auto json =
      config.find('{') == std::string::npos ? preset_config(config) : nlohmann::ordered_json::parse(config);
  const auto rules = QuantConfig::from_json(json);
  if (part != nullptr)
    static_cast<void>(quantize(*network.module, rules, network.input_shape(), *part));
  else
    static_cast<void>(quantize(*network.module, rules, network.input_shape()));
  network.identity["quantization"] = json;
}

}  // namespace fq::python
