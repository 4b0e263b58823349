// Streams, events, graphs and launches of the simulated device.

#include <cstring>
#include <utility>

#include "simulated/launch.h"
#include "simulated/state.h"

namespace fq::simulated {
namespace {

struct Graph {
  std::vector<Work> work;
};

struct Stream {
  Graph* graph = nullptr;  // not null between cudaStreamBeginCapture and cudaStreamEndCapture
};

int event_token;

Stream& as_stream(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }
Graph& as_graph(cudaGraph_t graph) { return *reinterpret_cast<Graph*>(graph); }
Graph& as_graph(cudaGraphExec_t graph) { return *reinterpret_cast<Graph*>(graph); }

void arrive() {
  for (const auto& [to, bytes] : state().arrivals) std::memcpy(to, bytes.data(), bytes.size());
  state().arrivals.clear();
}

cudaError_t wait() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  ++s.counts.waits;
  arrive();
  return cudaSuccess;
}

}  // namespace

bool captured(cudaStream_t stream) { return as_stream(stream).graph != nullptr; }
cudaError_t answer_now(cudaStream_t stream) {
  return captured(stream) ? failed(cudaErrorStreamCaptureUnsupported) : answer();
}
void submit(cudaStream_t stream, Work work) {
  if (captured(stream)) {
    as_stream(stream).graph->work.push_back(std::move(work));
    return;
  }
  const DeviceMemory::Open open(state().memory);
  work();
}

cudaError_t launch(cudaStream_t stream, std::function<void(Order)> kernel) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const auto code = answer(); code != cudaSuccess) return code;
  const auto order = ++s.counts.launches % 2 == 0 ? Order::forwards : Order::backwards;
  submit(stream, [order, kernel = std::move(kernel)] { kernel(order); });
  return cudaSuccess;
}

}  // namespace fq::simulated

using namespace fq::simulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &as_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return captured(stream) ? failed(cudaErrorStreamCaptureUnsupported) : wait();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned) { return answer_now(stream); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(&event_token);
  return answer();
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) { return answer_now(stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return wait(); }

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
  ++s.counts.graphs;
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
