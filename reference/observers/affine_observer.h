#pragma once

/// torchao's observer of smallest and largest values.

#include "fakequant/reference/torchao.h"
#include "fakequant/reference/torchao_qparams.h"

namespace fq::torchao {

/// Running smallest and largest value of each block of a granularity, from which
/// `choose_qparams_affine_with_min_max` makes scale and zero point. Observations are f32, f16 or bf16 and
/// keep their type; an empty one changes nothing. As in `choose_qparams_affine`, axes of size 1 stay in the
/// shape of the results, and a block of all ones reduces everything. Throws ArgumentError for a granularity
/// that does not fit, blocks in another number than before, results asked for before the first observation.
class AffineQuantizedMinMaxObserver {
 public:
  AffineQuantizedMinMaxObserver(MappingType mapping_type, IntegerType target_dtype, Granularity granularity,
                                QParamsOptions options = {});

  void observe(const Tensor& x);
  [[nodiscard]] QParams calculate_qparams() const;
  /// Undefined before the first observation.
  [[nodiscard]] const Tensor& min_val() const noexcept { return min_; }
  [[nodiscard]] const Tensor& max_val() const noexcept { return max_; }

 private:
  MappingType mapping_type_;
  IntegerType target_dtype_;
  Granularity granularity_;
  QParamsOptions options_;
  Tensor min_, max_;
};

}  // namespace fq::torchao
