#include "fakequant/core/backend/cuda/runtime/runtime.h"

#include <atomic>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/exact.h"
#include "fakequant/core/backend/cuda/runtime/arena.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/device_state.h"
#include "fakequant/core/backend/cuda/runtime/work.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {
namespace {

struct Found {
  int count = 0;
  cudaError_t code = cudaSuccess;
};

Found find_devices() noexcept {
  Found out;
  out.code = cudaGetDeviceCount(&out.count);
  if (out.code != cudaSuccess) {
    // The error would otherwise be reported by the next CUDA call.
    static_cast<void>(cudaGetLastError());
    out.count = 0;
  }
  return out;
}

// Counted once: the number of devices of a process does not change.
const Found& found() noexcept {
  static const Found devices = find_devices();
  return devices;
}

}  // namespace

int device_count() noexcept { return found().count; }

std::string why_unusable() {
  if (found().count > 0) return {};
  try {
    check(found().code, "cudaGetDeviceCount");
  } catch (const Error& error) {
    return error.what();
  }
  return "the driver shows no GPU: use --device cpu";
}

std::string describe_device(Device device) {
  static_cast<void>(device_state(device));
  cudaDeviceProp properties{};
  FQ_CUDA(cudaGetDeviceProperties(&properties, device.index));
  return fmt::format("{}, {} GB, compute {}.{}", properties.name,
                     (properties.totalGlobalMem + 500000000) / 1000000000, properties.major,
                     properties.minor);
}

cudaStream_t device_stream(Device device) {
  if (const Capturing* own = capturing(device)) return own->stream;
  DeviceState& state = device_state(device);
  FQ_CUDA(cudaSetDevice(device.index));
  return state.stream();
}

int processors(Device device) { return device_state(device).processors(); }
Alarm alarm(Device device, const std::string& text, AlarmKind kind) {
  return device_state(device).alarm(text, kind);
}

void* allocate(std::size_t bytes, Device device) {
  // Tensors of captured work keep their addresses, so they come from the arena of the capture.
  if (const Capturing* own = capturing(device)) return own->arena->take(bytes);
  // Memory for an upload must not wait for the device's stream, which may be busy with a step.
  if (const cudaStream_t stream = upload_stream(device))
    return device_state(device).take_for_upload(bytes, stream);
  return device_state(device).take(bytes);
}

void deallocate(void* pointer, std::size_t bytes, Device device) noexcept {
  // The arena is found by address: a block may be freed outside of the capture.
  if (pointer == nullptr || Arena::give_back(pointer)) return;
  try {
    device_state(device).give(pointer, bytes);
  } catch (const Error&) {  // the device is lost, with its memory
  }
}

MemoryStats memory_stats(Device device) noexcept {
  try {
    return device_state(device).stats();
  } catch (const Error&) {
    return {};
  }
}

void reset_peak_memory(Device device) noexcept {
  try {
    device_state(device).reset_peak();
  } catch (const Error&) {
  }
}

void release_cached_memory() noexcept {
  for (int i = 0; i < device_count(); ++i) {
    try {
      device_state(Device::cuda(i)).trim();
    } catch (const Error&) {
    }
  }
}

void fill_bytes(void* pointer, int value, std::size_t bytes, Device device) {
  note_written(pointer, static_cast<std::int64_t>(bytes));
  note_work(WorkKind::copy);
  FQ_CUDA(cudaMemsetAsync(pointer, value, bytes, device_stream(device)));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) {
  if (from_device.is_cuda()) note_read(from, static_cast<std::int64_t>(bytes));
  if (to_device.is_cuda()) note_written(to, static_cast<std::int64_t>(bytes));
  note_work(WorkKind::copy);
  if (to_device.is_cpu()) {
    // A capture only records the copy, while the caller needs the values now.
    refuse_capture("a copy to the host");
    FQ_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device_stream(from_device)));
    return synchronize_device(from_device);
  }
  if (from_device != to_device) refuse_capture("a copy from elsewhere");
  // Small copies are staged in page-locked memory, and need no wait.
  constexpr std::size_t few = std::size_t{1} << 16;
  const cudaStream_t stream = device_stream(to_device);
  if (from_device.is_cpu() && bytes <= few) return device_state(to_device).copy_staged(to, from, bytes);
  if (from_device.is_cpu() || from_device == to_device) {
    if (from_device.is_cpu()) count_wait();  // pageable memory: waits for all work of the stream
    const auto kind = from_device.is_cpu() ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
    FQ_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream));
    return;
  }
  // Peer copies are ordered by neither stream alone: waits for both devices.
  synchronize_device(from_device);
  FQ_CUDA(cudaSetDevice(to_device.index));
  FQ_CUDA(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, stream));
  wait(stream);
}

void synchronize_device(Device device) {
  refuse_capture("a wait");
  static_cast<void>(device_stream(device));
  device_state(device).synchronize();
}

// A fill kernel and a copy detect drivers, architectures and memory limits that the properties do not show.
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

namespace {

// Counters for tests: relaxed order suffices.
std::atomic<std::int64_t> launches, waits, graphs;

void count_one(std::atomic<std::int64_t>& number) noexcept { number.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

Counts counts() noexcept { return {launches.load(), waits.load(), graphs.load()}; }
void count_launch() noexcept {
  count_one(launches);
  note_work(WorkKind::launch);
}
void count_wait() noexcept { count_one(waits); }
void count_graph() noexcept { count_one(graphs); }

}  // namespace fq::cuda
