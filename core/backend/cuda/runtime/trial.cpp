#include "fakequant/core/backend/cuda/runtime/trial.h"

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/exact.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

Trial try_device(Device device) {
  constexpr std::size_t megabyte = 1000000, least = 256 * megabyte;
  try {
    const std::string what = describe_device(device);
    std::size_t available = 0, total = 0;
    FQ_CUDA(cudaSetDevice(device.index));
    FQ_CUDA(cudaMemGetInfo(&available, &total));
    if (available < least)
      return {false,
              fmt::format("{}: only {} of {} MB are free", what, available / megabyte, total / megabyte)};
    const Tensor ones = Tensor::full({1}, 1.0, DType::f32, device);
    if (ones.item() != 1.0) return {false, what + ": a kernel gives a wrong result"};
    return {true, fmt::format("{}, {} MB free", what, available / megabyte)};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

std::string code_type(Device device) {
  const ExactChoice& choice = exact_choice(device);
  return fmt::format("{}{}", cpu::name(choice.type),
                     choice.reason.empty() ? "" : fmt::format(" ({})", choice.reason));
}

}  // namespace fq::cuda
