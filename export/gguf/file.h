#pragma once

/// GGUF files, version 3, as read by llama.cpp and the `gguf` package: keys and values, then tensors.
///
///     GgufModel file;
///     file.metadata.emplace_back("general.architecture", std::string("fakequant"));
///     file.tensors.push_back({"w", weight.shape(), GgufType::f32, weight});
///     save_gguf("model.gguf", file);
///     const GgufModel back = load_gguf("model.gguf");

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/core/trace.h"

namespace fq {

/// Supported tensor types, with their numbers in the file.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8 };
/// Returns "F32", "F16", "Q4_0" or "Q8_0".
[[nodiscard]] std::string_view name(GgufType type) noexcept;

/// A named tensor. `shape` is [N, K] for a matrix. The file stores the sizes in reverse order. `data` is f32
/// or f16 with that shape. For Q4_0 and Q8_0 it is u8 [rows, bytes per row], packed as in reference/ggml.h.
struct GgufTensor {
  std::string name;
  Shape shape;
  GgufType type = GgufType::f32;
  Tensor data;
};

/// Value of a key. Integers of fewer bits are read as 32-bit integers.
using GgufValue = detail::CopyableVariant<bool, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t,
                                          float, double, std::string, std::vector<std::int32_t>,
                                          std::vector<float>, std::vector<std::string>>;

/// Content of a file, in its order.
struct GgufModel {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;

  /// Returns the value of a key, or null.
  [[nodiscard]] const GgufValue* value(std::string_view key) const noexcept;
  /// Returns the tensor with that name, or null.
  [[nodiscard]] const GgufTensor* tensor(std::string_view name) const noexcept;
};

/// Writes a temporary file, syncs it and renames it. Tensors begin at multiples of 32 bytes. Throws
/// ArgumentError for a duplicate key or tensor, more than four axes, a name of 64 bytes or more (ggml's
/// limit), and data that does not match type and shape. Throws FileError and SystemError as other writers.
void save_gguf(const std::string& path, const GgufModel& model);
/// Reads a whole file. Throws FileError for a file that is not GGUF or is truncated, for sizes and offsets
/// that do not fit the file or each other, for duplicate names, and for unsupported types of tensors and
/// arrays. The size of the file limits the allocated memory.
[[nodiscard]] GgufModel load_gguf(const std::string& path);

}  // namespace fq
