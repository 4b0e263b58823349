#pragma once

/// Samples of another format, on their way into a data set.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// What a sample is stored as.
struct SampleType {
  Shape shape;
  DType dtype = DType::u8;
  double scale = 0;     ///< what stored values are multiplied by; 0: nothing is said of it
  bool tokens = false;  ///< whether they are token ids
};

/// Samples in their order, each asked for once, or left out.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;  // stands at a place of a file
  SampleSource& operator=(const SampleSource&) = delete;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const SampleType& type() const = 0;
  /// Writes sample `row`, of those not asked for yet the rows before are passed over. False for one that
  /// cannot be read and is left out: the source counts and names it. Throws FileError.
  [[nodiscard]] virtual bool read(std::int64_t row, std::byte* to) = 0;
  /// Of the first that was left out: which one, and why.
  [[nodiscard]] virtual std::string first_left_out() const { return {}; }
  /// Which one that is, for messages: "x.npy: row 7", "a.csv: line 9", "cats/3.png".
  [[nodiscard]] virtual std::string place_of(std::int64_t row) const = 0;
};

/// The answers that samples have.
enum class Task { none, classes, several, real, dense };

/// One answer a sample: `values` [N] i64 of classes; [N, K] u8 of several labels, 1 where one applies; f32
/// [N] or [N, K] of real numbers; i64 [N, ..] of a class for each pixel or token. Undefined without.
struct Labels {
  Task task = Task::none;
  Tensor values;
  std::vector<std::string> class_names;  ///< in the order of the labels, or none
};

}  // namespace fq::detail
