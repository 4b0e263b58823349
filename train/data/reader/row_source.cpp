#include "fakequant/train/data/reader/row_source.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/convert_elements.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostRow = std::int64_t{1} << 28;

[[noreturn]] void refuse(const ArrayFile& array, const std::string& why) {
  throw FileError(array.place(), "", fmt::format("[dataset] {} {}", array.place(), why));
}

std::int64_t bytes_of(const ArrayFile& array) { return array.row_elements() * bit_width(array.dtype()) / 8; }

}  // namespace

RowSource::RowSource(std::vector<ArrayFile> arrays) : arrays_(std::move(arrays)) {
  const ArrayFile& first = arrays_.front();
  std::int64_t elements = 0;
  for (const auto& array : arrays_) {
    if (array.is_text()) refuse(array, "is an array of text: numbers are put side by side");
    if (array.shape()[0] != first.shape()[0])
      refuse(array, fmt::format("has {} samples, {} has {}: they must be of the same", array.shape()[0],
                                first.place(), first.shape()[0]));
    elements += array.row_elements();
    if (elements > kMostRow) refuse(array, fmt::format("makes rows of more than {} elements", kMostRow));
    rows_.emplace_back(static_cast<std::size_t>(bytes_of(array)));
  }
  const auto all = [&](auto is) { return std::ranges::all_of(arrays_, is); };
  const bool bytes = all([](const ArrayFile& array) { return array.dtype() == DType::u8; });
  const bool whole = all([](const ArrayFile& array) { return !is_floating(array.dtype()); });
  type_.shape = {elements};
  type_.tokens = whole && !bytes;
  type_.dtype = bytes ? DType::u8 : whole ? DType::i64 : DType::f32;
}

bool RowSource::read(std::int64_t row, std::byte* to) {
  for (; next_ <= row; ++next_)
    for (std::size_t i = 0; i < arrays_.size(); ++i) arrays_[i].next_row(rows_[i].data());
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const std::int64_t count = arrays_[i].row_elements();
    convert_elements(arrays_[i].dtype(), rows_[i].data(), type_.dtype, to, count);
    to += count * bit_width(type_.dtype) / 8;
  }
  return true;
}

std::string RowSource::place_of(std::int64_t row) const {
  return fmt::format("{}: row {}", arrays_.front().place(), row);
}

}  // namespace fq::detail
