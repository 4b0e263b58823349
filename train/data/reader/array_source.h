#pragma once

/// Arrays as samples.

#include <string>
#include <vector>

#include "fakequant/train/data/reader/array_file.h"
#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// What the axes of an array behind N are.
enum class ArrayLayout { automatic, nchw, nhwc, nhw, ncl, flat, tokens };

/// The names that a user gives: "auto", "nchw", "nhwc", "nhw", "ncl", "flat", "tokens".
[[nodiscard]] const std::vector<std::string>& array_layouts();
/// Of one of these names.
[[nodiscard]] ArrayLayout array_layout(const std::string& name);

/// Samples as the layout says, channels first: bytes and floats of 16 and 32 bits are kept, wider integers
/// become i32 or i64 tokens, and everything else f32.
class ArraySource final : public SampleSource {
 public:
  /// `automatic`: rows of integers wider than a byte are tokens, [N, H, W] of bytes images of one channel, of
  /// others [N, C, L], and four axes are NCHW unless there is no doubt that they are NHWC. What was not clear
  /// is said in `notes`. Throws FileError for text, ranks that the layout has not, and images of which it
  /// cannot be told.
  ArraySource(ArrayFile array, ArrayLayout layout, std::vector<std::string>& notes);

  [[nodiscard]] std::int64_t size() const override { return array_.shape()[0]; }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override;

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  [[nodiscard]] ArrayLayout choose(ArrayLayout layout, std::vector<std::string>& notes) const;
  void take_type();

  ArrayFile array_;
  ArrayLayout layout_;
  SampleType type_;
  std::int64_t next_ = 0;
  std::vector<std::byte> row_, plain_;
};

}  // namespace fq::detail
