// What kernels/cuda has, for builds without it: no tensor is on a device there.

#include "fakequant/core/error.h"
#include "fakequant/reference/kernels/cuda/clip.h"
#include "fakequant/reference/kernels/cuda/fake_quant.h"
#include "fakequant/reference/kernels/cuda/fake_quant_blocks.h"

namespace fq::cuda {
namespace {

[[noreturn]] void absent() { throw BackendError("[cuda] this build has no CUDA: use --device cpu"); }

}  // namespace

void fake_quant_integer(const Tensor&, const Tensor&, const Tensor&, const IntFormat&, Tensor&, Tensor*) {
  absent();
}
void integer_codes(const Tensor&, const Tensor&, const IntFormat&, Tensor&) { absent(); }
void fake_quant_e4m3(const Tensor&, const Tensor&, const Tensor&, Tensor&, Tensor*) { absent(); }
void round_to_integers(const Tensor&, float, float, Tensor&, Tensor*) { absent(); }
float smallest(const Tensor&) { absent(); }

void fake_quant_fp4(const Tensor&, const Tensor&, const Tensor&, Tensor&, Tensor*) { absent(); }
void fake_quant_blocks(const Tensor&, std::int64_t, const cpu::ElementGrid&, const fq::detail::BlockScales&,
                       float, Tensor&, Tensor*) {
  absent();
}
void fake_quant_nvfp4(const Tensor&, float, float, Tensor&, Tensor*) { absent(); }
void fake_quant_rows(const Tensor&, std::int64_t, const cpu::ElementGrid&, bool,
                     const fq::detail::BlockScales&, Tensor&) {
  absent();
}
void fake_quant_nvfp4_rows(const Tensor&, float, Tensor&) { absent(); }

Tensor mask_within(const Tensor&, const Tensor&) { absent(); }
Tensor mask_between(const Tensor&, const Tensor&, const Tensor&) { absent(); }
void clip(const Tensor&, const Tensor&, const Tensor&, Tensor&) { absent(); }
Tensor sum_beyond(const Tensor&, const Tensor&, const Tensor&, bool) { absent(); }

}  // namespace fq::cuda
