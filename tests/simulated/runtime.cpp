// The functions of libcudart that core calls, with their names and answers.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "simulated/simulated.h"
#include "simulated/state.h"

namespace fq::simulated {

State& state() {
  static auto* one = new State;
  return *one;
}

cudaError_t answer() {
  State& s = state();
  if (s.calls_left == 0 || --s.calls_left > 0) return cudaSuccess;
  const std::scoped_lock lock(s.mutex);
  for (const auto& [address, queue] : s.queues)
    if (const auto own = queue.lock()) run_until(*own, own->end());
  return s.last = s.planned;
}

cudaError_t failed(cudaError_t code) { return state().last = code; }

void set_memory(std::int64_t bytes) { state().memory.set_limit(static_cast<std::size_t>(bytes)); }
void fail(cudaError_t code, int calls) {
  state().planned = code;
  state().calls_left = calls;
}
void refuse_bytes() { state().bytes_refused = true; }
std::int64_t pageable_copies() { return state().pageable_copies; }
namespace {

std::deque<int> pools;  // their addresses are the handles

/// One, or FAKEQUANT_SIMULATED_GPUS: names of one memory. A process of several uses its own device.
int devices() {
  const char* given = std::getenv("FAKEQUANT_SIMULATED_GPUS");
  return given != nullptr ? std::atoi(given) : 1;
}

bool is_pinned(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  const auto block = state().pinned.lower_bound(at);
  return block != state().pinned.end() && at < block->first + block->second;
}

/// Pageable memory is copied at once, other memory when the copy runs.
Work copy_work(void* to, const void* from, std::size_t bytes) {
  State& s = state();
  if (s.memory.holds(from) || is_pinned(from)) return [=] { std::memcpy(to, from, bytes); };
  ++s.pageable_copies;
  const auto* first = static_cast<const std::byte*>(from);
  return [to, taken = std::vector<std::byte>(first, first + bytes)] {
    std::memcpy(to, taken.data(), taken.size());
  };
}

thread_local int current_device = 0;

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  const bool inside = s.memory.holds(to) && s.memory.holds(from);
  if (captured(stream) && !inside) return failed(cudaErrorStreamCaptureUnsupported);
  submit(stream, copy_work(to, from, bytes));
  return cudaSuccess;
}

}  // namespace
}  // namespace fq::simulated

using namespace fq::simulated;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return answer();
}
cudaError_t cudaSetDevice(int device) {
  if (device >= devices()) return failed(cudaErrorInvalidDevice);
  current_device = device;
  return answer();
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return answer();
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 11040;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 3;  // few multiprocessors: threads have several items soon
  return answer();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Simulated");
  properties->totalGlobalMem = std::size_t{8} << 30;
  properties->major = 9;
  return answer();
}
cudaError_t cudaGetLastError() { return std::exchange(state().last, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "simulated"; }

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = state().memory.available();
  *total = std::size_t{8} << 30;
  return answer();
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  const std::scoped_lock lock(state().mutex);
  *pool = reinterpret_cast<cudaMemPool_t>(&pools.emplace_back());
  return answer();
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void*) {
  const std::scoped_lock lock(state().mutex);
  if (attribute == cudaMemPoolReuseAllowInternalDependencies) state().memory.set_never_waits(pool);
  return answer();
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  const auto& memory = state().memory;
  *static_cast<std::uint64_t*>(value) = memory.never_waits(pool) ? 0 : memory.reserved();
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  *pointer = s.memory.take(bytes, pool);
  if (*pointer == nullptr) return failed(cudaErrorMemoryAllocation);
  submit(stream, [&s, block = *pointer] { s.memory.poison(block); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  const std::size_t size = s.memory.give(pointer);
  if (size == 0) return failed(cudaErrorInvalidValue);
  submit(stream, [&s, pointer, size] { s.memory.drop(pointer, size); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  submit(stream, [=] { std::memset(pointer, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  if (const auto code = answer(); code != cudaSuccess) return code;
  *pointer = std::malloc(bytes);
  if (*pointer == nullptr) return failed(cudaErrorMemoryAllocation);
  const std::scoped_lock lock(state().mutex);
  state().pinned[static_cast<std::byte*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  const std::scoped_lock lock(state().mutex);
  state().pinned.erase(static_cast<std::byte*>(pointer));
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}

// Functions that nvcc's code calls at program start.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t) { std::abort(); }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { std::abort(); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) { std::abort(); }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { std::abort(); }

}  // extern "C"
