#pragma once

/// Arrays of the benchmark: test data, the files that both sides read, and comparison to the bit.

#include <filesystem>
#include <string>

#include "fakequant/core/tensor.h"

namespace fq::bench {

/// Bell-shaped numbers in (-3, 3) of deviation 1, the same for the same seed.
[[nodiscard]] Tensor bell(Shape shape, std::uint64_t seed);
/// Overwrites the front of `x`: NaN, infinities, zeros, subnormals, +-amax and its neighbours, halves of
/// codes.
void put_specials(Tensor& x, float amax);

/// `<folder>/<name>.bin`: the elements in row-major order, little-endian; bits as one byte each.
void write_array(const std::filesystem::path& folder, const std::string& name, const Tensor& values);
/// Reads an array of that shape. Throws FileError if the file has another size.
[[nodiscard]] Tensor read_array(const std::filesystem::path& folder, const std::string& name, Shape shape,
                                DType dtype = DType::f32);

/// Whether a zero differs from a negative zero.
enum class Zeros { differ, equal };

/// Describes the first element whose bits differ between two f32 tensors; empty if they are equal. All NaNs
/// are equal.
[[nodiscard]] std::string first_difference(const std::string& name, const Tensor& ours,
                                           const Tensor& expected, Zeros zeros = Zeros::differ);
/// Describes the first difference of two masks (u1); empty if they are equal.
[[nodiscard]] std::string first_mask_difference(const Tensor& ours, const Tensor& expected);

}  // namespace fq::bench
