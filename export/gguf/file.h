#pragma once

/// GGUF files, version 3, as llama.cpp and the `gguf` package read them: keys and values, then tensors.
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

/// The types of tensors that are written and read, by their numbers in the file.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8 };
/// "F32", "F16", "Q4_0", "Q8_0".
[[nodiscard]] std::string_view name(GgufType type) noexcept;

/// A tensor by its name. `shape` is in our order, [N, K] of a matrix; the file has it turned over. `data` is
/// f32 or f16 of that shape; of Q4_0 and Q8_0 u8 [rows, bytes of a row], as reference/ggml.h packs blocks.
struct GgufTensor {
  std::string name;
  Shape shape;
  GgufType type = GgufType::f32;
  Tensor data;
};

/// A value of a key. Integers of fewer bits are read as those of 32.
using GgufValue = detail::CopyableVariant<bool, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t,
                                          float, double, std::string, std::vector<std::int32_t>,
                                          std::vector<float>, std::vector<std::string>>;

/// All that a file holds, in its order.
struct GgufModel {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;

  /// The value of a key, or null.
  [[nodiscard]] const GgufValue* value(std::string_view key) const noexcept;
  /// The tensor of that name, or null.
  [[nodiscard]] const GgufTensor* tensor(std::string_view name) const noexcept;
};

/// Writes the file beside, syncs and renames it; tensors begin at multiples of 32 bytes. Throws ArgumentError
/// for a key or tensor that is there twice, more than four axes, a name of 64 bytes and more (ggml's limit)
/// and data that is not of the type and shape; FileError and SystemError as other files do.
void save_gguf(const std::string& path, const GgufModel& model);
/// Reads all of a file. Throws FileError for one that is none or was cut, sizes and offsets that do not fit
/// the file or each other, names that are there twice, and types of tensors and arrays other than those
/// above, naming them. What is allocated is bounded by the size of the file.
[[nodiscard]] GgufModel load_gguf(const std::string& path);

}  // namespace fq
