#include "fakequant/bench/kernels.h"

#include <limits>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/kernel_checks.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kKernelRows = 2048, kKernelColumns = 1024, kBlock = 128;

Forward forward(Shape shape, Tensor amax, void (*run)(Forward&), std::string (*check)(const Forward&)) {
  return {bell(shape, 1), std::move(amax), Tensor::zeros(shape), Tensor::zeros(shape, DType::u1), run, check};
}

/// Ranges around kAmax.
Tensor ranges(Shape shape) {
  Tensor amax = bell(std::move(shape), 3);
  auto* values = amax.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) values[i] = kAmax + 0.1f * values[i];
  return amax;
}

template <int bits, bool narrow>
void run_integer(Forward& k) {
  cpu::fake_quant_integer(k.x, k.amax, k.amax, IntFormat{bits, false, narrow}, k.y, &k.mask);
}

void run_e4m3(Forward& k) { cpu::fake_quant_e4m3(k.x, k.amax, k.amax, k.y, &k.mask); }

void run_nvfp4(Forward& k) {
  const float range = k.amax.data<float>()[0];
  cpu::fake_quant_nvfp4(k.x, range / 2688.0f, range, k.y, &k.mask);
}

void run_mxfp8(Forward& k) {
  constexpr detail::ElementGrid grid{448, 0x1p-6f, 0x1p-3f, std::numeric_limits<float>::quiet_NaN()};
  const float range = k.amax.data<float>()[0];
  const detail::BlockScales scales{detail::BlockScales::Rule::power_of_two, grid.max};
  cpu::fake_quant_blocks(k.x, 32, grid, scales, range, k.y, &k.mask);
}

}  // namespace

Forward int8(std::int64_t elements) {
  return forward({elements}, Tensor::scalar(kAmax), run_integer<8, true>, check_int8);
}

Forward int8_power_of_two(std::int64_t elements) {
  return forward({elements}, Tensor::scalar(127.0f / 64), run_integer<8, true>, check_int8);
}

Forward int8_axis0(std::int64_t elements) {
  return forward({kKernelRows, elements / kKernelRows}, ranges({kKernelRows, 1}), run_integer<8, true>,
                 check_int8);
}

Forward int8_lastaxis(std::int64_t elements) {
  return forward({elements / kKernelColumns, kKernelColumns}, ranges({kKernelColumns}), run_integer<8, true>,
                 check_int8);
}

Forward int4_block128(std::int64_t elements) {
  const std::int64_t blocks = elements / kBlock;
  return forward({blocks, kBlock}, ranges({blocks, 1}), run_integer<4, false>, check_int4);
}

Forward e4m3(std::int64_t elements) {
  return forward({elements}, Tensor::scalar(kAmax), run_e4m3, check_e4m3);
}

Forward nvfp4(std::int64_t elements) {
  return forward({elements}, Tensor::scalar(kAmax), run_nvfp4, check_nvfp4);
}

Forward mxfp8(std::int64_t elements) {
  return forward({elements}, Tensor::scalar(kAmax), run_mxfp8, check_mxfp8);
}

void masked_gradient(const Tensor& dy, const Tensor& mask, Tensor& dx) { cpu::apply_mask(dy, mask, dx); }

}  // namespace fq::bench
