#pragma once

/// Several arrays side by side as one row for each sample: what networks of several inputs read.

#include <vector>

#include "fakequant/train/data/reader/array_file.h"
#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// The elements of each array's sample, flattened in row-major order, the arrays in their order: bytes where
/// all are u8, i64 where all are integers (token ids and masks), else f32, which has whole numbers up to
/// 2^24.
class RowSource final : public SampleSource {
 public:
  /// Throws FileError for an array of text, and where they have not as many samples.
  explicit RowSource(std::vector<ArrayFile> arrays);

  [[nodiscard]] std::int64_t size() const override { return arrays_.front().shape()[0]; }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override;

 private:
  std::vector<ArrayFile> arrays_;
  SampleType type_;
  std::int64_t next_ = 0;
  std::vector<std::vector<std::byte>> rows_;  // the last one read of each
};

}  // namespace fq::detail
