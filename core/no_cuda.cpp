// What core/cuda has, for builds without it: there is no device, and whoever asks for one is told so.

#include "fakequant/core/cuda/runtime.h"
#include "fakequant/core/cuda/tensors.h"
#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

constexpr const char* kAbsent =
    "this build has no CUDA: use --device cpu, or build where nvcc is found (-DFAKEQUANT_CUDA=ON)";

[[noreturn]] void absent() { throw BackendError(std::string("[cuda] ") + kAbsent); }

}  // namespace

int device_count() noexcept { return 0; }
std::string why_unusable() { return kAbsent; }
std::string describe_device(Device) { absent(); }
void* allocate(std::size_t, Device) { absent(); }
void deallocate(void*, std::size_t, Device) noexcept {}
MemoryStats memory_stats(Device) noexcept { return {}; }
void reset_peak_memory(Device) noexcept {}
void release_cached_memory() noexcept {}
void fill_bytes(void*, int, std::size_t, Device) { absent(); }
void copy(void*, Device, const void*, Device, std::size_t) { absent(); }
void wait_for(Device) { absent(); }

void fill(Tensor&, double) { absent(); }
void convert(const Tensor&, Tensor&) { absent(); }
void relayout(const Tensor&, Tensor&) { absent(); }

}  // namespace fq::cuda
