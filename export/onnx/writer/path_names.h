#pragma once

/// Quantizers known by their paths.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// While it lives every quantizer of the model has one of its paths as its name: those that a user's own
/// module made have none of themselves, or one that others have too.
class PathNames {
 public:
  explicit PathNames(Module& model);
  ~PathNames();
  PathNames(const PathNames&) = delete;  // puts back what it changed
  PathNames& operator=(const PathNames&) = delete;

 private:
  std::vector<std::pair<TensorQuantizer*, std::string>> before_;
};

}  // namespace fq::detail
