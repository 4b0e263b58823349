#pragma once

/// What a checkpoint says of the network that it is of (its attribute `model`), and the network again.
///
///     {"model": .., "sample_shape": [..], "classes": n, "folded": false, "quantization": null}
///
/// beside which the command keeps what it needs, among it "dense": true where outputs have axes behind the
/// classes. "model" is a model file's, "quantization" a config.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/model/model_file.h"

namespace fq::detail {

/// Of a network as it is built: neither folded nor quantized.
[[nodiscard]] nlohmann::json network_identity(const ModelSpec& spec, const Shape& sample_shape,
                                              std::int64_t classes);
/// The shape of a batch of that many.
[[nodiscard]] Shape input_shape_of(const nlohmann::json& identity, std::int64_t batch);

/// The model of `spec` with first values by seed, as the identity says it is built.
[[nodiscard]] std::shared_ptr<Module> first_network(const nlohmann::json& identity, const ModelSpec& spec,
                                                    std::uint64_t seed);
/// The network that an identity is of, folded and quantized as it says, with any values. Throws
/// json::exception and ArgumentError for what is none.
[[nodiscard]] std::shared_ptr<Module> network_again(const nlohmann::json& identity);

}  // namespace fq::detail
