#include "fakequant/train/data/reader/window_source.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace fq::detail {

WindowSource::WindowSource(std::string path, std::vector<std::int32_t> tokens, std::int64_t length)
    : path_(std::move(path)),
      tokens_(std::move(tokens)),
      type_{.shape = {length}, .dtype = DType::i32, .tokens = true} {}

std::int64_t WindowSource::add(const TextPart& part) {
  const std::int64_t before = size();
  for (std::int64_t start = part.begin; start + type_.shape[0] < part.end; start += part.stride)
    starts_.push_back(start);
  groups_.resize(starts_.size(), part.group);
  return size() - before;
}

Labels WindowSource::labels(std::vector<std::string> names) const {
  Tensor next = Tensor::empty({size(), type_.shape[0]}, DType::i64);
  auto* to = next.mutable_data<std::int64_t>();
  for (const auto start : starts_) to = std::copy_n(tokens_.begin() + start + 1, type_.shape[0], to);
  return {Task::dense, std::move(next), std::move(names)};
}

bool WindowSource::read(std::int64_t row, std::byte* to) {
  std::memcpy(to, tokens_.data() + starts_[std::size_t(row)],
              std::size_t(type_.shape[0]) * sizeof(std::int32_t));
  return true;
}

std::string WindowSource::place_of(std::int64_t row) const {
  return fmt::format("{}: token {}", path_, starts_[std::size_t(row)]);
}

}  // namespace fq::detail
