#include <cstring>

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
  NcclRanks(Device device, int rank, int size, const ncclUniqueId& id) {
    static_cast<void>(stream_of(device));  // makes it the thread's device
    FQ_NCCL(CommInitRank, &ranks_, size, id, rank);
  }
  ~NcclRanks() override {
    if (ranks_ != nullptr) static_cast<void>(nccl().CommDestroy(ranks_));
  }

  void sum(Tensor& values) override {
    const cudaStream_t stream = stream_of(values.device());
    void* data = mutable_data_of<std::int64_t>(values);
    FQ_NCCL(AllReduce, data, data, static_cast<std::size_t>(values.numel()), ncclInt64, ncclSum, ranks_,
            stream);
  }

 private:
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

std::unique_ptr<DeviceRanks> join_device_ranks(Device device, int rank, int size, const std::string& id) {
  ncclUniqueId own{};
  if (id.size() != sizeof own.internal) throw BackendError("[ranks] an id that is none of NCCL's");
  std::memcpy(own.internal, id.data(), id.size());
  return std::make_unique<cuda::NcclRanks>(device, rank, size, own);
}

}  // namespace detail
}  // namespace fq
