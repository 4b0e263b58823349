// Streams, events, graphs and launches of the simulated device.

#include <cstring>
#include <utility>

#include "simulated/launch.h"
#include "simulated/state.h"

namespace fq::simulated {
namespace {

struct Graph {
  std::deque<Work> work;
};

struct Stream {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  int asked = 0;
  Graph* graph = nullptr;  // not null between cudaStreamBeginCapture and cudaStreamEndCapture
};

/// The work of a stream when the event was recorded.
struct Event {
  std::shared_ptr<Queue> queue;
  std::uint64_t end = 0;
  int asked = 0;
};

/// CUDA's default stream, which has no address; it waits for no other here.
Stream& default_stream() {
  static auto* one = [] {
    auto* fresh = new Stream;
    state().queues[fresh->queue.get()] = fresh->queue;
    return fresh;
  }();
  return *one;
}
Stream& as_stream(cudaStream_t stream) {
  return stream == nullptr ? default_stream() : *reinterpret_cast<Stream*>(stream);
}
Event& as_event(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }
Graph& as_graph(cudaGraph_t graph) { return *reinterpret_cast<Graph*>(graph); }
Graph& as_graph(cudaGraphExec_t graph) { return *reinterpret_cast<Graph*>(graph); }

void run_until(const Event& event) {
  if (event.queue) run_until(*event.queue, event.end);
}

cudaError_t wait(const Event& event) {
  const std::scoped_lock lock(state().mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  run_until(event);
  return cudaSuccess;
}

}  // namespace

void run_until(Queue& queue, std::uint64_t end) {
  State& s = state();
  const auto run = [&] {
    ++s.running;
    while (queue.done < end) {
      const Work work = std::move(queue.work.front());
      queue.work.pop_front();
      ++queue.done;
      work();
    }
    --s.running;
  };
  if (s.running > 0 || queue.done >= end) return run();
  const DeviceMemory::Open open(s.memory);
  run();
}

bool captured(cudaStream_t stream) { return as_stream(stream).graph != nullptr; }
cudaError_t answer_now(cudaStream_t stream) {
  return captured(stream) ? failed(cudaErrorStreamCaptureUnsupported) : answer();
}
void submit(cudaStream_t stream, Work work) {
  auto& own = as_stream(stream);
  (captured(stream) ? own.graph->work : own.queue->work).push_back(std::move(work));
}

cudaError_t launch(cudaStream_t stream, std::function<void(Order)> kernel) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  const auto order = ++s.launches % 2 == 0 ? Order::forwards : Order::backwards;
  submit(stream, [order, kernel = std::move(kernel)] { kernel(order); });
  return cudaSuccess;
}

}  // namespace fq::simulated

using namespace fq::simulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  auto* fresh = new Stream;
  s.queues[fresh->queue.get()] = fresh->queue;
  *stream = reinterpret_cast<cudaStream_t>(fresh);
  return answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  auto& queue = *as_stream(stream).queue;
  run_until(queue, queue.end());
  s.queues.erase(&queue);
  delete &as_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::scoped_lock lock(state().mutex);
  if (captured(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  const auto& queue = as_stream(stream).queue;
  return wait({queue, queue->end(), 0});
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::scoped_lock lock(state().mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  Stream& own = as_stream(stream);
  const bool pending = own.queue->done < own.queue->end();
  if (pending && own.asked++ % 2 == 0) return cudaErrorNotReady;
  run_until(*own.queue, own.queue->end());  // time has passed
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::scoped_lock lock(state().mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  submit(stream, [before = as_event(event)] { run_until(before); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return answer();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = state().milliseconds;
  return answer();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &as_event(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::scoped_lock lock(state().mutex);
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  const auto& queue = as_stream(stream).queue;
  as_event(event) = {queue, queue->end(), 0};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait(as_event(event)); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::scoped_lock lock(state().mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  Event& own = as_event(event);
  if (own.asked++ > 0 && own.queue) run_until(*own.queue, own.queue->end());  // time has passed
  return own.queue == nullptr || own.queue->done >= own.end ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const auto code = answer_now(stream); code != cudaSuccess) return code;
  as_stream(stream).graph = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(as_stream(stream).graph, nullptr));
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
  for (const auto& work : as_graph(graph).work) submit(stream, work);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return failed(cudaErrorInvalidDeviceFunction);  // code of a GPU
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, const void*, int, std::size_t,
                                                                   unsigned) {
  return failed(cudaErrorInvalidDeviceFunction);
}

}  // extern "C"
