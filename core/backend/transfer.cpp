#include "fakequant/core/backend/transfer.h"

#include "fakequant/core/backend/cuda/runtime/transfer.h"

namespace fq::detail {

struct Readback::Body {
  cuda::Readback copy;
};

Tensor upload(const Tensor& host, Device device) {
  if (!host.defined() || !device.is_cuda()) return host;
  return cuda::upload(host, device);
}

Tensor constant(const Tensor& x, Device device) {
  return x.device().is_cpu() && device.is_cuda() ? cuda::constant(x, device) : x.to(device);
}

Readback::Readback(const Tensor& x) {
  if (x.device().is_cuda())
    body_ = std::make_unique<Body>(
        Body{cuda::Readback(x.raw(), static_cast<std::size_t>(x.nbytes()), x.device())});
  // A copy on the CPU, too: the caller may overwrite x before `get`.
  host_ = x.device().is_cuda() ? Tensor::empty(x.shape(), x.dtype(), Device::cpu(), x.layout()) : x.clone();
}
Readback::~Readback() = default;

Tensor Readback::get() {
  if (body_) body_->copy.get(host_.mutable_raw());
  body_.reset();
  return host_;
}

}  // namespace fq::detail
