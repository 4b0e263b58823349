#pragma once

/// Windows of one long text, each with the tokens that follow.

#include <string>
#include <vector>

#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// Tokens [begin, end) of a text, whose windows go to one group; each begins `stride` behind the one before.
struct TextPart {
  std::uint8_t group = 0;
  std::int64_t begin = 0, end = 0, stride = 1;
};

/// Windows of `length` tokens, i32 [length]. What of a part is shorter than a window and the token behind it
/// is left out, so that no window reads a token of another part.
class WindowSource final : public SampleSource {
 public:
  /// `path` names the text in messages.
  WindowSource(std::string path, std::vector<std::int32_t> tokens, std::int64_t length);

  /// Adds the windows of a part behind those that are there. Returns how many.
  std::int64_t add(const TextPart& part);
  /// For each place of each window the token behind it: i64 [N, length], `dense`.
  [[nodiscard]] Labels labels(std::vector<std::string> names) const;
  /// The group of each window.
  [[nodiscard]] const std::vector<std::uint8_t>& groups() const noexcept { return groups_; }

  [[nodiscard]] std::int64_t size() const override { return std::int64_t(starts_.size()); }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override;

 private:
  std::string path_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> starts_;
  std::vector<std::uint8_t> groups_;
  SampleType type_;
};

}  // namespace fq::detail
