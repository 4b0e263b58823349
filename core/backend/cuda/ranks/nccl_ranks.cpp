#include <cstring>
#include <mutex>
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
    static_cast<void>(stream_of(device));  // makes it the thread's device
    FQ_NCCL(CommInitRank, &ranks_, size, id, rank);
    set_wait_check([this](double waited) { check_wait(waited); });
  }
  ~NcclRanks() override {
    set_wait_check({});
    if (ranks_ == nullptr) return;
    try {
      static_cast<void>(stream_of(device_));
    } catch (const Error&) {  // the device is lost, and its sums with it
      return;
    }
    static_cast<void>(nccl().CommDestroy(ranks_));
  }

  void sum(Tensor& values) override {
    if (ranks_ == nullptr) throw BackendError("[ranks] the sums of GPUs were aborted after an error before");
    const cudaStream_t stream = stream_of(values.device());
    void* data = mutable_data_of<std::int64_t>(values);
    FQ_NCCL(AllReduce, data, data, static_cast<std::size_t>(values.numel()), ncclInt64, ncclSum, ranks_,
            stream);
  }

 private:
  /// Ends the sums in progress, which would never end, and throws, where NCCL reports an error or the time is
  /// over.
  void check_wait(double waited) {
    const std::scoped_lock lock(mutex_);
    if (ranks_ == nullptr) return;
    ncclResult_t status = ncclSuccess;
    if (const auto asked = nccl().CommGetAsyncError(ranks_, &status); asked != ncclSuccess) status = asked;
    const bool failed = status != ncclSuccess && status != ncclInProgress, late = waited > seconds_;
    if (!failed && !late) return;
    static_cast<void>(nccl().CommAbort(std::exchange(ranks_, nullptr)));
    if (failed) check(status, "ncclAllReduce");
    throw BackendError(
        fmt::format("[ranks] rank {} waited {} s for the sums of the other GPUs: a process hangs or is much "
                    "slower. --rank-timeout gives them longer",
                    rank_, seconds_));
  }

  Device device_;
  int rank_;
  double seconds_;
  std::mutex mutex_;
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
  if (id.size() != sizeof own.internal) throw BackendError("[ranks] an id that is none of NCCL's");
  std::memcpy(own.internal, id.data(), id.size());
  return std::make_unique<cuda::NcclRanks>(device, rank, size, own, seconds);
}

}  // namespace detail
}  // namespace fq
