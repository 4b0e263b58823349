#include "fakequant/train/data/reader/array_source.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/sample_layout.h"
#include "fakequant/train/data/reader/convert_elements.h"

namespace fq::detail {
namespace {

bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }
bool is_wide(DType dtype) { return !is_floating(dtype) && !is_byte(dtype); }

std::size_t axes_of(ArrayLayout layout) {
  switch (layout) {
    case ArrayLayout::nchw:
    case ArrayLayout::nhwc:
      return 4;
    case ArrayLayout::nhw:
    case ArrayLayout::ncl:
      return 3;
    default:
      return 2;
  }
}

DType stored_type(DType dtype, bool tokens) {
  if (tokens) return is_byte(dtype) ? DType::i32 : dtype;
  return is_byte(dtype) || dtype == DType::f16 ? dtype : DType::f32;
}

/// [pixels, channels] to [channels, pixels].
void channels_first(const std::byte* from, std::byte* to, std::int64_t pixels, std::int64_t channels,
                    std::size_t bytes) {
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t p = 0; p < pixels; ++p, to += bytes)
      std::memcpy(to, from + (p * channels + c) * std::int64_t(bytes), bytes);
}

}  // namespace

const std::vector<std::string>& array_layouts() {
  static const std::vector<std::string> names{"auto", "nchw", "nhwc", "nhw", "ncl", "flat", "tokens"};
  return names;
}

ArrayLayout array_layout(const std::string& name) {
  const auto& names = array_layouts();
  return static_cast<ArrayLayout>(std::ranges::find(names, name) - names.begin());
}

ArraySource::ArraySource(ArrayFile array, ArrayLayout layout, std::vector<std::string>& notes)
    : array_(std::move(array)), layout_(choose(layout, notes)) {
  if (array_.shape().size() != axes_of(layout_))
    refuse(fmt::format("has the shape {}: --layout {} is of {} axes", to_string(array_.shape()),
                       array_layouts()[std::size_t(layout_)], axes_of(layout_)));
  if (layout_ == ArrayLayout::tokens && is_floating(array_.dtype()))
    refuse("is an array of floats: tokens are integers");
  take_type();
}

void ArraySource::refuse(const std::string& why) const {
  throw FileError(array_.place(), "", fmt::format("[dataset] {} {}", array_.place(), why));
}

ArrayLayout ArraySource::choose(ArrayLayout layout, std::vector<std::string>& notes) const {
  const Shape& shape = array_.shape();
  if (array_.is_text())
    refuse("is an array of text: write it to a file of lines for fakequant dataset from-text");
  if (layout != ArrayLayout::automatic) return layout;
  const auto note = [&](const char* what) {
    notes.push_back(fmt::format("{}: {} read as {}", array_.place(), to_string(shape), what));
  };
  if (shape.size() == 2) {
    if (!is_wide(array_.dtype())) return ArrayLayout::flat;
    note("token ids; --layout flat makes numbers of them");
    return ArrayLayout::tokens;
  }
  if (shape.size() == 3) {
    if (is_byte(array_.dtype()) || array_.is_u16()) return ArrayLayout::nhw;
    note("signals, channels before samples; --layout nhw makes images of one channel of them");
    return ArrayLayout::ncl;
  }
  if (shape.size() != 4)
    refuse(fmt::format("has the shape {}: give [N, C, H, W], [N, H, W, C], [N, H, W], [N, C, L] or [N, F]",
                       to_string(shape)));
  const auto last = looks_channels_last({shape.begin() + 1, shape.end()});
  if (last == ChannelsLast::no) return ArrayLayout::nchw;
  if (last == ChannelsLast::perhaps)
    refuse(
        fmt::format("has the shape {}: say whether its channels are the last axis, by --layout nhwc, or the "
                    "one behind N, by --layout nchw",
                    to_string(shape)));
  note("images with their channels at the end, stored with them first; --layout nchw leaves them");
  return ArrayLayout::nhwc;
}

void ArraySource::take_type() {
  const Shape& shape = array_.shape();
  type_.shape.assign(shape.begin() + 1, shape.end());
  if (layout_ == ArrayLayout::nhw) type_.shape.insert(type_.shape.begin(), 1);
  if (layout_ == ArrayLayout::nhwc) type_.shape = {shape[3], shape[1], shape[2]};
  type_.tokens = layout_ == ArrayLayout::tokens;
  type_.dtype = stored_type(array_.dtype(), type_.tokens);
  const bool images = type_.shape.size() == 3;
  if (images && array_.dtype() == DType::u8 && !array_.is_bool()) type_.scale = 1.0 / 255;
  if (images && array_.is_u16()) type_.scale = 1.0 / 65535;
  row_.resize(std::size_t(array_.row_elements() * bit_width(array_.dtype()) / 8));
  plain_.resize(std::size_t(array_.row_elements() * bit_width(type_.dtype) / 8));
}

bool ArraySource::read(std::int64_t row, std::byte* to) {
  for (; next_ <= row; ++next_) array_.next_row(row_.data());
  const bool last = layout_ == ArrayLayout::nhwc;
  std::byte* const plain = last ? plain_.data() : to;
  if (array_.dtype() == type_.dtype)
    std::memcpy(plain, row_.data(), row_.size());
  else
    convert_elements(array_.dtype(), row_.data(), type_.dtype, plain, array_.row_elements());
  if (last)
    channels_first(plain, to, type_.shape[1] * type_.shape[2], type_.shape[0],
                   std::size_t(bit_width(type_.dtype) / 8));
  return true;
}

std::string ArraySource::place_of(std::int64_t row) const {
  return fmt::format("{}: row {}", array_.place(), row);
}

}  // namespace fq::detail
