// Replaces backend/cuda in builds without CUDA: there is no device, and requests for one throw BackendError.

#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/transfer.h"
#include "fakequant/core/backend/foreign_stream.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"

namespace fq {
namespace cuda {

const fq::detail::Kernels* const kernel_table = nullptr;

Counts counts() noexcept { return {}; }
void count_work(bool) {}
std::vector<KernelWork> counted_work() { return {}; }
Trial try_device(Device) { return {false, why_unusable()}; }

int device_count() noexcept { return 0; }
std::string why_unusable() {
  return "this build has no CUDA: use --device cpu, or build where nvcc is found (-DFAKEQUANT_CUDA=ON)";
}
std::string describe_device(Device) { fq::detail::throw_no_cuda(); }

std::string code_type(Device) { fq::detail::throw_no_cuda(); }

Tensor upload(const Tensor&, Device) { fq::detail::throw_no_cuda(); }
Tensor constant(const Tensor&, Device) { fq::detail::throw_no_cuda(); }
// Readback and Capture need complete types, although no object can be made.
struct Readback::Body {};
Readback::Readback(const void*, std::size_t, Device) { fq::detail::throw_no_cuda(); }
Readback::~Readback() = default;
Readback::Readback(Readback&&) noexcept = default;
Readback& Readback::operator=(Readback&&) noexcept = default;
void Readback::get(void*) { fq::detail::throw_no_cuda(); }

}  // namespace cuda

namespace detail {

void wait_for_stream(Device device, ForeignStream) {
  if (device.is_cuda()) throw_no_cuda();
}
void let_stream_wait(Device device, ForeignStream stream) { wait_for_stream(device, stream); }
KeptDevice::KeptDevice() = default;
KeptDevice::~KeptDevice() = default;

struct Capture::Body {};
Capture::Capture(Device) { throw_no_cuda(); }
Capture::~Capture() = default;
void Capture::add(const std::function<void()>&) { throw_no_cuda(); }
void Capture::launch(std::size_t) { throw_no_cuda(); }

}  // namespace detail
}  // namespace fq
