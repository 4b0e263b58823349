#include "fakequant/layers/modules/detail/on_host.h"

#include "fakequant/core/error.h"

namespace fq::detail {

OnHost::OnHost(Module& model) : model_(model), device_(model.device()) {
  if (device_ != Device::cpu()) model_.to(Device::cpu());
}

OnHost::~OnHost() {
  if (device_ == Device::cpu()) return;
  try {
    model_.to(device_);
  } catch (const Error&) {
  }
}

}  // namespace fq::detail
