#pragma once

/// What a model did, for batches of any size.

#include "fakequant/layers/model/detail/calls.h"

namespace fq::detail {

struct OpenCalls : Calls {
  std::vector<Shape> wider;  ///< the output's shape of each call for a batch of one more

  /// The sizes of call i's output; -1 where they follow the batch.
  [[nodiscard]] Shape open_shape(std::size_t i) const;
};

/// The calls for samples of that shape. Throws ArgumentError for a model that calls other operators for
/// another batch.
[[nodiscard]] OpenCalls record_open_calls(Module& model, const Shape& sample);

}  // namespace fq::detail
