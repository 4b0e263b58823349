#include "fakequant/core/ops/detail/engine_weight.h"

#include "fakequant/core/ops/detail/row_product.h"

namespace fq::detail {
namespace {

/// On the host, with a scale for each block of each row.
QuantizedTensor on_host(const QuantizedTensor& w) {
  QuantizedTensor out{w.codes.to(Device::cpu()), w.spec, {}};
  const Shape blocks = w.spec.granularity.scale_shape(w.codes.shape());
  out.spec.scale = w.spec.scale.to(Device::cpu()).to(Layout::row_major).reshape(blocks);
  return out;
}

}  // namespace

EngineWeight engine_weight(const QuantizedTensor& w, RowEngine engine) {
  const int bits = w.spec.format.bits();
  if (engine != RowEngine::ggml && engine != RowEngine::xnnpack) return {{}, w, row_sums(w)};
  const QuantizedTensor host = on_host(w);
  if (engine == RowEngine::ggml)
    return {cpu::ggml_weight(host.codes, host.spec.scale, bits == 4 && w.codes.dim(0) % 8 == 0), {}, {}};
  if (bits <= 4) return {cpu::xnnpack_weight(host.codes, host.spec.scale), {}, {}};
  return {{}, host, Tensor::from(cpu::code_sums(host.codes, w.codes.dim(1)), {w.codes.dim(0)})};
}

bool KeptEngineWeight::Version::is_of(const Tensor& other) const {
  return tensor.defined() && tensor.raw() == other.raw() && tensor.shape() == other.shape() &&
         version == other.version();
}

std::shared_ptr<const EngineWeight> KeptEngineWeight::of(const QuantizedTensor& w, RowEngine engine) {
  const std::scoped_lock lock(mutex_);
  if (kept_ && engine == engine_ && codes_.is_of(w.codes) && scale_.is_of(w.spec.scale)) return kept_;
  kept_ = nullptr;  // before another takes its place
  kept_ = std::make_shared<const EngineWeight>(engine_weight(w, engine));
  codes_ = Version(w.codes);
  scale_ = Version(w.spec.scale);
  engine_ = engine;
  return kept_;
}

void KeptEngineWeight::forget() {
  const std::scoped_lock lock(mutex_);
  kept_ = nullptr;
  codes_ = scale_ = Version();
}

}  // namespace fq::detail
