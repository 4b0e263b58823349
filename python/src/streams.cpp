#include "streams.h"

#include "exchange.h"
#include "fakequant/core/error.h"
#include "kinds.h"

namespace fq::python {

using fq::detail::ForeignStream;

ForeignStream current_stream(nb::handle like, Device device) {
  if (!device.is_cuda()) return 0;
  const Exchange* exchange = exchange_of(like);
  if (exchange != nullptr && exchange->current_stream != nullptr) {
    void* stream = nullptr;
    if (exchange->current_stream(nb::device::cuda::value, device.index, &stream) != 0)
      nb::raise_python_error();
    return reinterpret_cast<ForeignStream>(stream);
  }
  if (!is_torch(like)) return 0;
  const nb::object cuda = nb::module_::import_("torch").attr("cuda");
  return nb::cast<ForeignStream>(cuda.attr("current_stream")(device.index).attr("cuda_stream"));
}

void let_stream_wait_at_end(Device device, ForeignStream stream) noexcept {
  try {
    fq::detail::let_stream_wait(device, stream);
  } catch (const Error&) {  // the device is lost
  }
}

void wait_for_stream_at_end(Device device, ForeignStream stream) noexcept {
  try {
    fq::detail::wait_for_stream(device, stream);
  } catch (const Error&) {  // the device is lost
  }
}

}  // namespace fq::python
