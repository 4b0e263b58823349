#pragma once

/// DLPack's C exchange table (DLPack 1.2 and newer): converts arrays without a Python call. The type of an
/// array has the table as `__dlpack_c_exchange_api__`; torch has it since version 2.10. On a GPU, streams
/// order the work of the library and the work of other libraries on the arrays.

#include <cstdint>
#include <memory>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "fakequant/core/backend/foreign_stream.h"
#include "fakequant/core/tensor.h"

namespace fq::python {

namespace nb = nanobind;

/// DLPack's structures, version 1.
struct ManagedTensor {
  struct {
    std::uint32_t major = 1, minor = 1;
  } version;
  void* context = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;
  std::uint64_t flags = 0;
  nb::dlpack::dltensor tensor = {};
};

struct Exchange {
  struct {
    std::uint32_t major, minor;
  } version;
  Exchange* older;
  void* allocate;
  int (*from_object)(void* object, ManagedTensor** out);
  int (*to_object)(ManagedTensor* tensor, void** out);
  void* view;
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

/// Returns the table of the type of `value`, or null if the type has none or has another version.
[[nodiscard]] const Exchange* find_exchange(nb::handle value);

/// Owner of the memory of an array that Python received. On a GPU the destructor lets the library wait for
/// the work that `stream`, on which Python reads the array, has received by then.
struct Given {
  Tensor tensor;
  fq::detail::ForeignStream stream = 0;

  Given(Tensor memory, fq::detail::ForeignStream reads) : tensor(std::move(memory)), stream(reads) {}
  Given(const Given&) = delete;  // one owner
  ~Given();
};

/// Returns an array over the memory of a tensor, of the library that owns the table `exchange`. The tensor
/// must be row-major, with an element type that DLPack has.
[[nodiscard]] nb::object exchanged(const Exchange& exchange, std::unique_ptr<Given> given,
                                   nb::dlpack::dtype type);

namespace nb = nanobind;

/// Returns the stream that now receives work on arrays of the type of `like`: the current stream of its
/// DLPack table, torch.cuda.current_stream(), or the default stream of CUDA. Returns 0 on the CPU.
[[nodiscard]] fq::detail::ForeignStream current_stream(nb::handle like, Device device);

/// Functions for the release of memory, on any thread. The stream waits for the library, which may still read
/// the memory, or the library waits for the stream. The next call reports an error of the device.
void let_stream_wait_at_end(Device device, fq::detail::ForeignStream stream) noexcept;
void wait_for_stream_at_end(Device device, fq::detail::ForeignStream stream) noexcept;

}  // namespace fq::python
