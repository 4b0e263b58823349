// The functions of libcudart that core calls, with their names and answers.

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "fakequant/core/cuda/host_runner.h"
#include "simulated/device_memory.h"
#include "simulated/graphs.h"
#include "simulated/simulated.h"

namespace fq::simulated {
namespace {

struct Arrival {
  void* to;
  std::vector<std::byte> bytes;
};

struct State {
  std::recursive_mutex mutex;
  DeviceMemory memory;
  std::vector<Arrival> arrivals;  // copies to the host that nobody has waited for
  cudaError_t planned = cudaSuccess, last = cudaSuccess;
  int calls_left = 0;
  Counts counts{};
};

State& state() {
  static auto* one = new State;
  return *one;
}

/// What a call that may fail begins with.
cudaError_t answer() {
  State& s = state();
  if (s.calls_left > 0 && --s.calls_left == 0) return s.last = s.planned;
  return cudaSuccess;
}

cudaError_t failed(cudaError_t code) { return state().last = code; }

bool recorded(cudaStream_t stream) { return as_stream(stream).recorded != nullptr; }

/// Those of a launch, copied.
class Arguments {
 public:
  Arguments(const std::array<std::size_t, 2>& sizes, void** arguments) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      bytes_[i].resize(sizes[i] / sizeof(std::max_align_t) + 1);
      std::memcpy(bytes_[i].data(), arguments[i], sizes[i]);
    }
  }
  [[nodiscard]] std::array<void*, 2> pointers() { return {bytes_[0].data(), bytes_[1].data()}; }

 private:
  std::array<std::vector<std::max_align_t>, 2> bytes_;
};

void arrive() {
  for (const auto& [to, bytes] : state().arrivals) std::memcpy(to, bytes.data(), bytes.size());
  state().arrivals.clear();
}

int event_token, pool_token;

}  // namespace

void set_memory(std::int64_t bytes) { state().memory.set_limit(static_cast<std::size_t>(bytes)); }
void fail(cudaError_t code, int calls) {
  state().planned = code;
  state().calls_left = calls;
}
Counts counts() { return state().counts; }
DeviceMemory& device_memory() { return state().memory; }
std::recursive_mutex& device_mutex() { return state().mutex; }
void submit(cudaStream_t stream, Work work) {
  if (as_stream(stream).recorded != nullptr) {
    as_stream(stream).recorded->work.push_back(std::move(work));
    return;
  }
  const DeviceMemory::Open open(state().memory);
  work();
}

namespace {

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  const bool inside = s.memory.holds(to) && s.memory.holds(from);
  if (recorded(stream) && !inside) return failed(cudaErrorStreamCaptureUnsupported);
  submit(stream, [&s, to, from, bytes] {
    if (s.memory.holds(to))
      std::memcpy(to, from, bytes);
    else
      s.arrivals.push_back(
          {to, {static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes}});
  });
  return cudaSuccess;
}

/// Of calls that a stream cannot take while it is recorded from.
cudaError_t answer_now(cudaStream_t stream) {
  return recorded(stream) ? failed(cudaErrorStreamCaptureUnsupported) : answer();
}

cudaError_t wait() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  ++s.counts.waits;
  arrive();
  return cudaSuccess;
}

Graph& as_graph(cudaGraph_t graph) { return *reinterpret_cast<Graph*>(graph); }
Graph& as_graph(cudaGraphExec_t graph) { return *reinterpret_cast<Graph*>(graph); }

}  // namespace
}  // namespace fq::simulated

using namespace fq::simulated;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return answer();
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? answer() : failed(cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 11040;
  return cudaSuccess;
}
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &as_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return recorded(stream) ? failed(cudaErrorStreamCaptureUnsupported) : wait();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned) { return answer_now(stream); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(&event_token);
  return answer();
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) { return answer_now(stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return wait(); }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(&pool_token);
  return answer();
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return answer(); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = state().memory.reserved();
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  *pointer = s.memory.take(bytes);
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  return s.memory.give(pointer) ? cudaSuccess : failed(cudaErrorInvalidValue);
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
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* pointer) {
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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  as_stream(stream).recorded = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(as_stream(stream).recorded, nullptr));
  return answer();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = reinterpret_cast<cudaGraphExec_t>(new Graph(as_graph(graph)));
  return answer();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &as_graph(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete &as_graph(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  ++s.counts.graphs;
  for (const auto& work : as_graph(graph).work) submit(stream, work);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return answer();
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                   int threads, std::size_t shared,
                                                                   unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3, void** arguments, std::size_t,
                             cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  const auto runner = fq::cuda::host_runner(kernel);
  if (runner.run == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  const auto order = ++s.counts.launches % 2 == 0 ? fq::cuda::Order::forwards : fq::cuda::Order::backwards;
  submit(stream,
         [run = runner.run, blocks = grid.x, order, copies = Arguments(runner.sizes, arguments)]() mutable {
           run(blocks, order, copies.pointers().data());
         });
  return cudaSuccess;
}

// What nvcc's own code calls when a program starts.
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
