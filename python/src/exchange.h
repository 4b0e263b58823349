#pragma once

/// DLPack's C exchange table (DLPack 1.2 and newer): arrays in and out without a Python call. Types of arrays
/// name the table as `__dlpack_c_exchange_api__`; torch has it from 2.10 on. On a GPU, streams order the
/// library's work and the work of others on the arrays.

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

/// The table of the type of `value`, null where it has none or another version.
[[nodiscard]] const Exchange* exchange_of(nb::handle value);

/// What an array given to Python holds on to: its memory, which on a GPU comes back to the library after what
/// `stream`, where the array is read, has been given by then.
struct Given {
  Tensor tensor;
  fq::detail::ForeignStream stream = 0;

  Given(Tensor memory, fq::detail::ForeignStream reads) : tensor(std::move(memory)), stream(reads) {}
  Given(const Given&) = delete;  // one owner
  ~Given();
};

/// The array of that table's kind over the memory of a tensor that is row-major and of a type that DLPack
/// has.
[[nodiscard]] nb::object exchanged(const Exchange& exchange, std::unique_ptr<Given> given,
                                   nb::dlpack::dtype type);

namespace nb = nanobind;

/// The stream that work on arrays of the kind of `like` goes into now: that of its type's table of DLPack,
/// torch.cuda.current_stream(), or CUDA's default stream. 0 on the CPU.
[[nodiscard]] fq::detail::ForeignStream current_stream(nb::handle like, Device device);

/// Before memory is let go of, on any thread: that stream waits for the library, which may still read it, or
/// the library for the stream. Failures of the device are left to the next call.
void let_stream_wait_at_end(Device device, fq::detail::ForeignStream stream) noexcept;
void wait_for_stream_at_end(Device device, fq::detail::ForeignStream stream) noexcept;

}  // namespace fq::python
