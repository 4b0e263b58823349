#include "fakequant/core/tensor.h"

#include <cstring>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"

namespace fq {
namespace {

using detail::Kernels;

/// Copies the bytes of `from` to `to`, of equal size and on any device. Does nothing for `meta`.
void copy_bytes(const Tensor& from, Tensor& to) {
  const auto size = static_cast<std::size_t>(from.nbytes());
  const Device a = from.device(), b = to.device();
  auto* bytes = to.mutable_raw();
  if (a.is_meta() || b.is_meta() || size == 0) return;
  // Only the GPU's kernel can copy between both sides. It is the kernel of either tensor that is not on the
  // CPU.
  detail::run(a.is_cpu() ? b : a, &Kernels::copy_bytes, bytes, b, from.raw(), a, size);
}

}  // namespace

Tensor Tensor::described(Shape shape, DType dtype, Layout layout) {
  FQ_CHECK(layout == Layout::row_major || shape.size() == 4, "tensor",
           "channels_last needs 4 axes, the shape is {}", to_string(shape));
  Tensor out;
  out.numel_ = fq::numel(shape);
  // Sizes may come from files. The limit keeps byte counts from wrapping.
  FQ_CHECK(out.numel_ <= (std::int64_t{1} << 60), "tensor", "{} is too large: at most 2^60 elements",
           to_string(shape));
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.layout_ = layout;
  return out;
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device, Layout layout) {
  Tensor out = described(std::move(shape), dtype, layout);
  out.storage_ = Storage(byte_size(dtype, out.numel_), device);
  return out;
}

Tensor Tensor::borrow(void* data, Shape shape, DType dtype, std::function<void()> release, Device device,
                      Layout layout) {
  Tensor out = described(std::move(shape), dtype, layout);
  FQ_CHECK(data != nullptr || out.numel_ == 0, "tensor", "no memory was given for {}", out.describe());
  out.storage_ = Storage::borrow(data, byte_size(dtype, out.numel_), device, std::move(release));
  return out;
}

Tensor Tensor::zeros(Shape shape, DType dtype, Device device, Layout layout) {
  Tensor out = empty(std::move(shape), dtype, device, layout);
  const auto size = static_cast<std::size_t>(out.nbytes());
  // Zero is all bits 0 in every dtype.
  detail::run(device, &Kernels::fill_bytes, out.mutable_raw(), 0, size, device);
  return out;
}

Tensor Tensor::full(Shape shape, double value, DType dtype, Device device, Layout layout) {
  Tensor out = empty(std::move(shape), dtype, device, layout);
  detail::run(device, &Kernels::fill, out, value);
  return out;
}

Tensor Tensor::scalar(double value, DType dtype) { return full({}, value, dtype); }

std::int64_t Tensor::dim(int axis) const {
  return shape_[static_cast<std::size_t>(normalize_axis(axis, rank(), "tensor.dim"))];
}

void Tensor::check_access(DType dtype, Layout layout) const {
  FQ_CHECK(defined(), "tensor.data", "the tensor is undefined");
  FQ_CHECK(dtype == dtype_, "tensor.data", "the tensor is {}, asked for as {}: use to({}) first",
           name(dtype_), name(dtype), name(dtype));
  FQ_CHECK(layout == layout_ || numel_ == 0, "tensor.data",
           "the tensor is {}, asked for as {}: name its layout, or use to({}) first", name(layout_),
           name(layout), name(layout));
  // A pointer to GPU memory would crash the caller at its first use.
  if (!device().is_cpu())
    throw BackendError(
        fmt::format("[tensor.data] the tensor is on {}, which the host cannot read: use to(Device::cpu())",
                    to_string(device())));
}

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor out = empty(shape_, dtype_, device(), layout_);
  copy_bytes(*this, out);
  return out;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_ || !defined()) return *this;
  Tensor out = empty(shape_, dtype, device(), layout_);
  detail::run(device(), &Kernels::convert, *this, out);
  return out;
}

Tensor Tensor::to(Layout layout) const {
  if (layout == layout_ || !defined()) return *this;
  // No kernel transposes elements of 2 or 4 bits, so these pass through one byte each.
  const bool packed = bit_width(dtype_) > 1 && bit_width(dtype_) < 8;
  if (packed) return pack_codes(unpack_codes(*this).to(layout), dtype_);
  Tensor out = empty(shape_, dtype_, device(), layout);
  detail::run(device(), &Kernels::relayout, *this, out);
  return out;
}

Tensor Tensor::to(Device where) const {
  if (!defined() || where == device()) return *this;
  Tensor out = empty(shape_, dtype_, where, layout_);
  copy_bytes(*this, out);
  return out;
}

Tensor Tensor::reshape(Shape shape) const {
  FQ_CHECK(defined(), "reshape", "the tensor is undefined");
  // A view keeps the order of memory, which is the logical order only for row-major tensors.
  FQ_CHECK(layout_ == Layout::row_major, "reshape",
           "a channels_last tensor has no other view: use to(row_major) first");
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (auto& size : shape) {
    FQ_CHECK(size != -1 || open == nullptr, "reshape", "{} has more than one -1", to_string(shape));
    if (size == -1)
      open = &size;
    else
      known *= size;
  }
  if (open != nullptr) *open = known > 0 ? numel_ / known : 0;
  FQ_CHECK(fq::numel(shape) == numel_, "reshape", "{} has {} elements, {} has another number",
           to_string(shape_), numel_, to_string(shape));
  Tensor view = *this;
  view.shape_ = std::move(shape);
  return view;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  FQ_CHECK(rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0], "slice",
           "rows {} to {} are not within {}", begin, end, to_string(shape_));
  const std::int64_t row = shape_[0] == 0 ? 0 : numel_ / shape_[0];
  const std::int64_t bits = begin * row * bit_width(dtype_);
  // Views begin at whole bytes. Masks and packed codes of odd row lengths have rows inside a byte: use `cut`.
  FQ_CHECK(bits % 8 == 0, "slice", "row {} of {} {} does not start on a byte", begin, name(dtype_),
           to_string(shape_));
  Tensor view = *this;
  view.shape_[0] = end - begin;
  view.numel_ = (end - begin) * row;
  view.offset_ += bits / 8;
  return view;
}

void Tensor::copy_from(const Tensor& source) {
  FQ_CHECK(source.defined() == defined() && source.shape_ == shape_ && source.dtype_ == dtype_, "copy_from",
           "{} cannot be copied to {}: shape and dtype must be equal", source.describe(), describe());
  const Tensor same = source.to(layout_);
  copy_bytes(same, *this);
}

double Tensor::item() const {
  FQ_CHECK(numel_ == 1, "item", "{} has {} elements, not one", describe(), numel_);
  // A single element has the same place in any layout.
  return to(Device::cpu()).to(DType::f64).data<double>(layout_)[0];
}

std::string Tensor::describe() const {
  if (!defined()) return "undefined tensor";
  auto text = fmt::format("{} {} {}", name(dtype_), to_string(shape_), to_string(device()));
  if (layout_ == Layout::channels_last) text += " channels_last";
  return text;
}

// Compares bits, not values: equal NaNs are equal, and +0 differs from -0.
bool bitwise_equal(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined() || a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Layout order = a.layout() == b.layout() ? a.layout() : Layout::row_major;
  const Tensor x = a.to(Device::cpu()).to(order), y = b.to(Device::cpu()).to(order);
  return x.numel() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.nbytes())) == 0;
}

namespace detail {

Tensor tensor_from_bytes(const void* bytes, std::int64_t count, Shape shape, DType dtype) {
  Tensor out = Tensor::empty(std::move(shape), dtype);
  FQ_CHECK(out.numel() == count, "tensor", "{} values do not fill the shape {}", count,
           to_string(out.shape()));
  if (count > 0) std::memcpy(out.mutable_raw(), bytes, static_cast<std::size_t>(out.nbytes()));
  return out;
}

void tensor_to_bytes(const Tensor& tensor, void* bytes, DType dtype) {
  FQ_CHECK(tensor.defined(), "to_vector", "the tensor is undefined");
  FQ_CHECK(tensor.dtype() == dtype, "to_vector", "the tensor is {}, asked for as {}", tensor.describe(),
           name(dtype));
  const Tensor rows = tensor.to(Device::cpu()).to(Layout::row_major);
  if (rows.numel() > 0) std::memcpy(bytes, rows.raw(), static_cast<std::size_t>(rows.nbytes()));
}

}  // namespace detail
}  // namespace fq
