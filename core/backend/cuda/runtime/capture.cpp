#include "fakequant/core/backend/capture.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/transfer.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/random.h"
#include "fakequant/core/storage.h"

namespace fq {
namespace cuda {

struct TouchedStorage {
  Storage storage;
  bool written = false;
};
using Touched = std::unordered_map<const void*, TouchedStorage>;  // by address

namespace {

// State of this thread's capture. A capture of another thread is independent.
struct InForce {
  const Capturing* capturing = nullptr;
  Touched* touched = nullptr;
  const std::uint64_t* step = nullptr;
  bool reads_step = false, failed = false;
};
thread_local InForce in_force;

using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace

const Capturing* capturing(Device device) noexcept {
  const Capturing* own = in_force.capturing;
  return own != nullptr && own->device == device ? own : nullptr;
}

const std::uint64_t* captured_step(Device device) noexcept {
  if (capturing(device) == nullptr) return nullptr;
  in_force.reads_step = true;
  return in_force.step;
}

void refuse_capture(const char* what) {
  if (in_force.capturing != nullptr)
    throw fq::detail::CannotCapture(fmt::format("[cuda] {} cannot be captured", what));
}

// An empty state: allocation and launches of `work` use the device's own memory and stream.
void run_uncaptured(const std::function<void()>& work) {
  const ScopedValue uncaptured(in_force, InForce{});
  work();
}

Storage constant(const void* from, std::size_t bytes, Device device) {
  const ScopedValue uncaptured(in_force, InForce{});
  Storage out(static_cast<std::int64_t>(bytes), device);
  copy_bytes(out.mutable_data(), device, from, Device::cpu(), bytes);
  return out;
}

Tensor constant(const Tensor& host, Device device) {
  const ScopedValue uncaptured(in_force, InForce{});
  return host.to(device);
}

void touched(const Storage& storage, const void* address, bool written) noexcept {
  // Tensors of the arena live as long as the capture. Parameters and other tensors must be kept alive for its
  // graphs.
  if (in_force.capturing == nullptr || in_force.capturing->arena->holds(address)) return;
  try {
    auto& [kept, ever_written] = (*in_force.touched)[address];
    kept = storage;
    ever_written = ever_written || written;
  } catch (const std::exception&) {
    in_force.failed = true;
  }
}

}  // namespace cuda

namespace detail {

struct Capture::Body {
  Device device;
  cuda::Stream stream;
  // The step of the random stream changes with every launch, so captured kernels read it from memory.
  Storage step;
  cuda::Capturing capturing;
  cuda::Touched touched;
  struct Part {
    cuda::GraphExec graph;
    bool reads_step = false;
  };
  std::vector<Part> parts;

  explicit Body(Device where) : device(where), step(sizeof(std::uint64_t), where) {
    // Makes the device current before its stream is created.
    static_cast<void>(cuda::device_stream(device));
    FQ_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
    capturing = {device, stream.get(), cuda::Arena::make(cuda::device_state(device))};
  }
  ~Body() { capturing.arena->close(); }
  Body(const Body&) = delete;  // graphs refer to its memory
  Body& operator=(const Body&) = delete;

  /// Runs `work` in the capture. Returns whether the work reads the step.
  bool call(const std::function<void()>& work) {
    const ScopedValue scope(
        cuda::in_force,
        cuda::InForce{&capturing, &touched, reinterpret_cast<const std::uint64_t*>(step.data())});
    work();
    if (cuda::in_force.failed) throw SystemError("[cuda] too little memory to capture the work");
    return cuda::in_force.reads_step;
  }
  /// Captures a part. Turns a SystemError into CannotCapture: a capture keeps all its tensors, and direct
  /// calls may still fit into memory.
  Part capture_part(const std::function<void()>& work) {
    try {
      return captured(work);
    } catch (const SystemError& error) {
      throw CannotCapture(error.what());
    }
  }
  Part captured(const std::function<void()>& work) {
    cuda::Graph graph;
    Part part;
    // Relaxed: other threads, for example an uploader, may allocate and copy during the capture.
    FQ_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed));
    try {
      part.reads_step = call(work);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream.get(), graph.out()));
      static_cast<void>(cudaGetLastError());  // an aborted capture ends with its own error
      throw;
    }
    FQ_CUDA(cudaStreamEndCapture(stream.get(), graph.out()));
    FQ_CUDA(cudaGraphInstantiate(part.graph.out(), graph.get(), 0));
    return part;
  }
};

Capture::Capture(Device device) {
  if (!device.is_cuda())
    throw BackendError(fmt::format("[cuda] {} has no stream to capture: use a GPU", to_string(device)));
  body_ = std::make_unique<Body>(device);
}
Capture::~Capture() = default;

void Capture::add(const std::function<void()>& work) { body_->parts.push_back(body_->capture_part(work)); }

void Capture::launch(std::size_t index) {
  Body& own = *body_;
  const Body::Part& part = own.parts.at(index);
  for (auto& [address, each] : own.touched)
    // A launch writes without the host code that counts versions, so saved tensors would not notice the
    // change.
    if (each.written) each.storage.mark_written();
  const std::uint64_t step = random_stream().step;
  if (part.reads_step)
    cuda::copy_bytes(own.step.mutable_data(), own.device, &step, Device::cpu(), sizeof step);
  cuda::count_graph();
  FQ_CUDA(cudaGraphLaunch(part.graph.get(), cuda::device_stream(own.device)));
}

}  // namespace detail
}  // namespace fq
