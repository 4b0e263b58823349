#pragma once

/// Network: a model together with what it takes to build it again from a checkpoint, as the command keeps it.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"

namespace fq::python {

struct Network {
  std::shared_ptr<Module> module;
  /// {"model": .., "sample_shape": [..], "classes": n, "folded": false, "quantization": null}.
  nlohmann::json identity;

  /// Of a batch of that many.
  [[nodiscard]] Shape input_shape(std::int64_t batch = 1) const;
  [[nodiscard]] bool quantized() const { return !identity.at("quantization").is_null(); }
};

/// A built-in model, a model file or an ONNX file, with first values by seed; a checkpoint, with its values.
[[nodiscard]] Network make_network(const std::string& model, const Shape& sample_shape, std::int64_t classes,
                                   const std::string& options, std::uint64_t seed);
/// Of a description, for samples of that shape.
[[nodiscard]] Network network_of(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes,
                                 std::uint64_t seed = 0);
[[nodiscard]] Network load_network(const std::string& path);
/// Another network of the same values, which shares nothing with it. Throws NumericError for values that are
/// NaN or infinite.
[[nodiscard]] Network copy_of(const Network& network);
void save_network(const Network& network, const std::string& path);
/// By the name of a preset or JSON. `part`: where the network is one part of another.
void quantize_network(Network& network, const std::string& config, NetworkPart* part = nullptr);

}  // namespace fq::python
