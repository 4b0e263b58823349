#pragma once

/// What quantization costs each tensor, measured on data.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"

namespace fq {

struct QuantizationError {
  std::string name;           ///< of the quantizer
  std::int64_t elements = 0;  ///< measured
  double mse = 0;             ///< mean of (quantized - x)^2
  double signal = 0;          ///< mean of x^2

  /// 10 log10(signal / mse): infinite without an error, 0 for a tensor of zeros.
  [[nodiscard]] double sqnr_db() const;
};

/// One pass in evaluation mode over the first `samples` samples of `data` (0: all of an epoch). As in
/// calibration nothing quantizes, so that each enabled quantizer is measured on the float tensors alone, and
/// a tensor counts once; weights are measured as they are. Only quantizers that a path of matches `pattern`,
/// in the order of the module tree. Sums are in double and do not depend on the number of threads. Throws
/// ArgumentError naming a quantizer without a range, for a pattern that matches none, and as `calibrate`.
[[nodiscard]] std::vector<QuantizationError> compute_quantization_mse(Module& model, DataLoader& data,
                                                                      std::int64_t samples = 0,
                                                                      std::string_view pattern = "*");

}  // namespace fq
