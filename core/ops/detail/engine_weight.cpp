#include "fakequant/core/ops/detail/engine_weight.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/row_product.h"

namespace fq::detail {
EngineWeight engine_weight(const QuantizedTensor& w, RowEngine engine) {
  EngineWeight out;
  out.outputs = w.codes.dim(0);
  const int bits = w.grid.format.bits();
  if ((engine != RowEngine::ggml && engine != RowEngine::xnnpack) ||
      (engine == RowEngine::xnnpack && bits > 4)) {
    out.codes = w;
    out.sums = row_sums(w);
    return out;
  }
  const Tensor codes = w.codes.to(Layout::row_major);
  const Tensor scales =
      w.grid.scale.to(Layout::row_major).reshape(w.grid.granularity.scale_shape(w.codes.shape()));
  if (engine == RowEngine::ggml)
    run(codes.device(), &Kernels::ggml_operand, codes, scales, bits != 4 || out.outputs % 8 != 0,
        out.operand);
  else
    run(codes.device(), &Kernels::xnnpack_operand, codes, scales, out.operand);
  return out;
}

bool KeptEngineWeight::Version::is_of(const Tensor& other) const {
  return tensor.defined() && tensor.raw() == other.raw() && tensor.shape() == other.shape() &&
         version == other.version();
}

std::shared_ptr<const EngineWeight> KeptEngineWeight::of(const QuantizedTensor& w, RowEngine engine) {
  const std::scoped_lock lock(mutex_);
  if (kept_ && engine == engine_ && codes_.is_of(w.codes) && scale_.is_of(w.grid.scale)) return kept_;
  kept_ = nullptr;  // before another takes its place
  kept_ = std::make_shared<const EngineWeight>(engine_weight(w, engine));
  codes_ = Version(w.codes);
  scale_ = Version(w.grid.scale);
  engine_ = engine;
  return kept_;
}

void KeptEngineWeight::forget() {
  const std::scoped_lock lock(mutex_);
  kept_ = nullptr;
  codes_ = scale_ = Version();
}

}  // namespace fq::detail
