#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/ranks/nccl.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/backend/device_ranks.h"
#include "fakequant/core/error.h"

namespace fq {
namespace cuda {
namespace {

class NcclRanks final : public fq::detail::DeviceRanks {
 public:
  NcclRanks(Device device, int rank, int size, const ncclUniqueId& id, double seconds)
      : device_(device), rank_(rank), seconds_(seconds) {
    static_cast<void>(device_stream(device));  // makes it the current device
    FQ_NCCL(CommInitRank, &ranks_, size, id, rank);
    // NCCL never ends a sum whose peer is lost, so every wait of the host checks for that.
    set_wait_check([this](double waited) { check_wait(waited); });
  }
  ~NcclRanks() override {
    set_wait_check({});
    if (ranks_ == nullptr) return;
    try {
      static_cast<void>(device_stream(device_));
    } catch (const Error&) {  // the device is lost, with its sums
      return;
    }
    static_cast<void>(nccl().CommDestroy(ranks_));
  }

  void sum(Tensor& values) override {
    const std::scoped_lock lock(mutex_);  // another thread may abort
    throw_if_aborted();
    const cudaStream_t stream = device_stream(values.device());
    void* data = mutable_device_data<std::int64_t>(values);
    // Integer sums have no order, so NCCL's algorithm does not change the result.
    FQ_NCCL(AllReduce, data, data, static_cast<std::size_t>(values.numel()), ncclInt64, ncclSum, ranks_,
            stream);
  }

 private:
  /// Throws if NCCL reports an error or the time limit is exceeded. Aborts the sums in progress first,
  /// because they would never end.
  void check_wait(double waited) {
    const std::scoped_lock lock(mutex_);
    throw_if_aborted();
    ncclResult_t status = ncclSuccess;
    if (const auto asked = nccl().CommGetAsyncError(ranks_, &status); asked != ncclSuccess) status = asked;
    if (status != ncclSuccess && status != ncclInProgress)
      aborted_ = fmt::format("[ranks] ncclAllReduce failed: {}", nccl().GetErrorString(status));
    else if (waited > seconds_)
      aborted_ = fmt::format(
          "[ranks] rank {} waited {} s for the sums of the other GPUs: a process hangs or is much "
          "slower. Use a longer rank_timeout",
          rank_, seconds_);
    else
      return;
    static_cast<void>(nccl().CommAbort(std::exchange(ranks_, nullptr)));
    throw_if_aborted();
  }
  /// Throws the reason of the abort on every thread: the first thread that notices may be one that prepares
  /// batches.
  void throw_if_aborted() const {
    if (!aborted_.empty()) throw BackendError(aborted_);
  }

  Device device_;
  int rank_;
  double seconds_;
  std::mutex mutex_;
  std::string aborted_;  // reason, set after the sums are aborted
  ncclComm_t ranks_ = nullptr;
};

}  // namespace
}  // namespace cuda

namespace detail {

std::string why_no_device_ranks() try {
  static_cast<void>(cuda::nccl());
  return {};
} catch (const BackendError& error) {
  return error.what();
}

std::string device_ranks_id() {
  ncclUniqueId id;
  FQ_NCCL(GetUniqueId, &id);
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<DeviceRanks> join_device_ranks(Device device, int rank, int size, const std::string& id,
                                               double seconds) {
  ncclUniqueId own{};
  if (id.size() != sizeof own.internal)
    throw BackendError("[ranks] the id is not an NCCL id: use device_ranks_id()");
  std::memcpy(own.internal, id.data(), id.size());
  return std::make_unique<cuda::NcclRanks>(device, rank, size, own, seconds);
}

}  // namespace detail
}  // namespace fq
