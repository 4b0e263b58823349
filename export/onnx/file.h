#pragma once

/// ONNX files: the only place that knows protobuf.

#include <cstdint>
#include <string>

#include "fakequant/export/onnx/model.h"

namespace fq {

/// False when the library was built without libonnx; the functions below throw BackendError then.
[[nodiscard]] bool has_onnx() noexcept;

/// What protobuf can hold in one file, with room for the graph.
inline constexpr std::int64_t onnx_inline_limit = (std::int64_t{1} << 31) - (std::int64_t{1} << 26);

/// Writes the model. When its initializers have more than `inline_limit` bytes together, those of 1024 bytes
/// and more go to `path` + ".data" beside it, 4096-byte aligned; a ".data" file of an earlier export at this
/// path is replaced by it. Both are written beside and synced, then renamed back to back, the data first, and
/// the model has their CRC-32C as metadata `fakequant.data_crc32c`. Throws FileError, SystemError as
/// AtomicFile.
void save_onnx(const std::string& path, const OnnxModel& model,
               std::int64_t inline_limit = onnx_inline_limit);

/// Reads a file from anywhere. Throws FileError when it is not an ONNX model, is longer than 2 GiB, has a
/// node that reads a name nobody has written before it (cycles and missing initializers are that), a name
/// written twice, a tensor whose bytes are not those of its shape and type, or external data outside of its
/// own folder, of a length other than announced or, where the model has it, of another checksum. What is
/// allocated is bounded by the size of the file and of its external data.
[[nodiscard]] OnnxModel load_onnx(const std::string& path);

}  // namespace fq
