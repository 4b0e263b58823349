#pragma once

/// The order of the library's work and of what others do with arrays of a GPU, in streams of theirs.

#include <nanobind/nanobind.h>

#include "fakequant/core/backend/foreign_stream.h"

namespace fq::python {

namespace nb = nanobind;

/// The stream that work on arrays of the kind of `like` goes into now: that of its type's table of DLPack,
/// torch.cuda.current_stream(), or CUDA's default stream. 0 on the CPU.
[[nodiscard]] fq::detail::ForeignStream current_stream(nb::handle like, Device device);

/// Before memory is let go of, on any thread: that stream waits for the library, which may still read it, or
/// the library for the stream. Failures of the device are left to the next call.
void let_stream_wait_at_end(Device device, fq::detail::ForeignStream stream) noexcept;
void wait_for_stream_at_end(Device device, fq::detail::ForeignStream stream) noexcept;

}  // namespace fq::python
