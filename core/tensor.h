#pragma once

/// Tensor: a dense array with a shape, a dtype, a device and a layout.
///
///     Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});  // two rows, on the CPU
///     Tensor rows = x.slice(1, 2);                                   // a view of the second one
///     Tensor half = x.to(DType::f16).to(Device::cuda());
///     std::vector<float> back = half.to(DType::f32).to_vector<float>();
///
/// A tensor has no gradient: operators that are differentiated take a Variable (core/variable.h), which holds
/// one. Arithmetic is in core/ops; what stands here makes tensors, looks at them, moves and converts them.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <utility>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/device.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/storage.h"

namespace fq {

/// A handle: copies share storage, and writing through one is seen by all; `clone()` copies data.
///
/// A tensor is always dense: it has no strides, but a layout tag. channels_last is what 4-D convolution,
/// pooling and batch norm put out, and their elementwise successors; everything else, parameters too, is
/// row-major. Shapes, axes, files, printing and `to_vector()` are logical (NCHW) whatever the layout; the raw
/// pointer of a channels_last tensor must be asked for by that name. The only views are `reshape` of a
/// row-major tensor and `slice` along axis 0.
///
/// On a GPU calls return before the work is done; what reads values on the host (`to(Device::cpu())`, `item`,
/// `to_vector`, printing) waits for it. On `meta` a tensor has a shape and no bytes. Reading one tensor from
/// several threads is safe; writing needs it alone.
class Tensor {
 public:
  /// Undefined: it has no shape and no storage. Operators and options take it for "not given" where they say
  /// so.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  /// What was moved from is undefined.
  Tensor(Tensor&& from) noexcept { swap(from); }
  Tensor& operator=(Tensor&& from) noexcept {
    Tensor(std::move(from)).swap(*this);
    return *this;
  }
  ~Tensor() = default;

  /// A new tensor whose contents are unspecified. Throws ArgumentError for a negative size, more than 2^60
  /// elements, and channels_last of other than 4 axes; SystemError when memory is short, BackendError where
  /// the device cannot be used.
  [[nodiscard]] static Tensor empty(Shape shape, DType dtype = DType::f32, Device device = Device::cpu(),
                                    Layout layout = Layout::row_major);
  /// As `empty`, with every byte 0: that is the number zero in every dtype but f8_e8m0, which has none (it is
  /// 2^-127 there).
  [[nodiscard]] static Tensor zeros(Shape shape, DType dtype = DType::f32, Device device = Device::cpu(),
                                    Layout layout = Layout::row_major);
  /// As `empty`, with every element `value`, rounded to `dtype` as `to(DType)` rounds. Not for dtypes of
  /// fewer than 8 bits.
  [[nodiscard]] static Tensor full(Shape shape, double value, DType dtype = DType::f32,
                                   Device device = Device::cpu(), Layout layout = Layout::row_major);
  /// A tensor of rank 0, so of one element, on the CPU.
  [[nodiscard]] static Tensor scalar(double value, DType dtype = DType::f32);
  /// A tensor over memory that somebody else owns, as long as the dtype and shape say and in that layout:
  /// nothing is copied. `release` is called when the last handle goes (Storage::borrow). Throws ArgumentError
  /// as `empty`, and for a null pointer where there are elements.
  [[nodiscard]] static Tensor borrow(void* data, Shape shape, DType dtype, std::function<void()> release = {},
                                     Device device = Device::cpu(), Layout layout = Layout::row_major);
  /// A copy of host values in row-major order, on the CPU, of the dtype of their C++ type (`dtype_of<T>`).
  /// `shape` defaults to one axis as long as the list. Throws ArgumentError when there are not as many values
  /// as the shape has elements.
  template <class T>
  [[nodiscard]] static Tensor from(std::span<const T> values, Shape shape);
  /// The same of a vector.
  template <class T>
  [[nodiscard]] static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>(values), std::move(shape));
  }
  /// The same of a list: `Tensor::from<float>({1, 2, 3, 4}, {2, 2})`.
  template <class T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }
  template <class T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }

  /// False only of a tensor that was made by the default constructor or moved from, or of a copy of one.
  [[nodiscard]] bool defined() const noexcept { return storage_.defined(); }
  /// Logical sizes, N, C, H, W of an activation, whatever the layout; empty for rank 0 and when undefined.
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// Size along `axis`, negative from the back. Throws ArgumentError when out of range.
  [[nodiscard]] std::int64_t dim(int axis) const;
  /// The number of axes; 0 when undefined.
  [[nodiscard]] int rank() const noexcept { return static_cast<int>(shape_.size()); }
  /// The number of elements: the product of the sizes, which is 1 for rank 0; 0 when undefined.
  [[nodiscard]] std::int64_t numel() const noexcept { return numel_; }
  /// The element type; f32 when undefined.
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// Where the bytes are; the CPU when undefined.
  [[nodiscard]] Device device() const noexcept { return storage_.device(); }
  /// How the elements lie in memory. It changes no shape, axis or index.
  [[nodiscard]] Layout layout() const noexcept { return layout_; }
  /// Bytes of the elements, rounded up to whole bytes for packed dtypes. A view counts its own elements only.
  [[nodiscard]] std::int64_t nbytes() const noexcept { return byte_size(dtype_, numel_); }
  /// The bytes, which other handles and views may share: a view's elements need not begin at their first one.
  [[nodiscard]] const Storage& storage() const noexcept { return storage_; }
  /// The version of the storage: it differs after any write through any handle or view. What is made of a
  /// tensor and kept (codes of a weight, values saved for backward) is told by it to be out of date.
  [[nodiscard]] std::uint64_t version() const noexcept { return storage_.version(); }

  /// The elements in row-major order; valid while any handle of the storage lives. Throws ArgumentError when
  /// undefined and for another dtype or layout, BackendError off the CPU.
  template <class T>
  [[nodiscard]] const T* data() const {
    return data<T>(Layout::row_major);
  }
  /// The elements in memory order, which must be `layout`.
  template <class T>
  [[nodiscard]] const T* data(Layout layout) const {
    check_access(dtype_of<T>, layout);
    return static_cast<const T*>(raw());
  }
  /// As `data`, to write to: bumps the version.
  template <class T>
  [[nodiscard]] T* mutable_data() {
    return mutable_data<T>(Layout::row_major);
  }
  template <class T>
  [[nodiscard]] T* mutable_data(Layout layout) {
    check_access(dtype_of<T>, layout);
    return static_cast<T*>(mutable_raw());
  }
  /// The first byte in memory order, of any dtype and layout, in the device's memory: the host cannot read
  /// that of a GPU. Null on `meta` and when undefined.
  [[nodiscard]] const void* raw() const noexcept {
    return storage_.data() == nullptr ? nullptr : storage_.data() + offset_;
  }
  /// As `raw`, to write to: it bumps the version.
  [[nodiscard]] void* mutable_raw() noexcept {
    auto* bytes = storage_.mutable_data();
    return bytes == nullptr ? nullptr : bytes + offset_;
  }
  /// Counts as a change of the storage although nobody here writes. It is for code that has written through a
  /// pointer taken before: what was made of the contents is then made anew.
  void mark_written() noexcept { storage_.mark_written(); }

  /// New storage with the same contents, layout and device; a view's clone has its own elements only.
  /// Undefined stays so.
  [[nodiscard]] Tensor clone() const;
  /// Converts each element: to floats by rounding to nearest even, where 16-bit floats overflow to infinity;
  /// to integers by rounding half to even, saturating, with 0 for NaN. It returns this tensor itself when the
  /// dtype is the same. Both types must have 8 bits or more; pack_codes and unpack_codes (core/quantized.h)
  /// are for the others.
  [[nodiscard]] Tensor to(DType dtype) const;
  /// The same contents on another device, or this tensor itself when it is there already. A copy to the CPU
  /// waits for the GPU, and throws what `synchronize` (core/device.h) throws.
  [[nodiscard]] Tensor to(Device device) const;
  /// The same logical values in another layout, or this tensor itself when it has that layout already. Throws
  /// ArgumentError for channels_last of other than 4 axes.
  [[nodiscard]] Tensor to(Layout layout) const;
  /// A view with another shape of as many elements; one size may be -1 and follows from the others. Throws
  /// ArgumentError for a channels_last tensor (ops::reshape moves its elements) and for another number of
  /// elements.
  [[nodiscard]] Tensor reshape(Shape shape) const;
  /// A view of rows [begin, end) of axis 0. Throws ArgumentError when out of range, and for a packed dtype
  /// where the rows do not begin on a whole byte.
  [[nodiscard]] Tensor slice(std::int64_t begin, std::int64_t end) const;
  /// Overwrites the contents with those of `source`, which all handles and views of this storage then see.
  /// Throws ArgumentError unless `source` has the same shape and dtype; its layout and device may be others.
  void copy_from(const Tensor& source);

  /// A copy of the elements in logical row-major order, from any device and layout. Throws ArgumentError
  /// when undefined, and unless T is the C++ type of the dtype: convert with `to` first.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const;
  /// The only element, converted to double; it waits for a GPU. Throws ArgumentError unless there is exactly
  /// one.
  [[nodiscard]] double item() const;
  /// Shape, dtype, device and layout, without values: "f32 [64, 3, 28, 28] cpu channels_last". It reads no
  /// memory.
  [[nodiscard]] std::string describe() const;

 private:
  void swap(Tensor& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(shape_, other.shape_);
    std::swap(numel_, other.numel_);
    std::swap(offset_, other.offset_);
    std::swap(dtype_, other.dtype_);
    std::swap(layout_, other.layout_);
  }
  /// Without storage.
  [[nodiscard]] static Tensor described(Shape shape, DType dtype, Layout layout);
  void check_access(DType dtype, Layout layout) const;

  Storage storage_;
  Shape shape_;
  std::int64_t numel_ = 0;
  std::int64_t offset_ = 0;  // bytes
  DType dtype_ = DType::f32;
  Layout layout_ = Layout::row_major;
};

/// Prints values (long axes abbreviated) in logical order, then shape, dtype and device; packed types print a
/// hint to dequantize.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Whether shape, dtype and bits are the same, compared in logical order, so that layouts may differ. NaN
/// equals a NaN of the same bits, and -0 does not equal 0.
[[nodiscard]] bool bitwise_equal(const Tensor& a, const Tensor& b);

namespace detail {
Tensor tensor_from_bytes(const void* bytes, std::int64_t count, Shape shape, DType dtype);
void tensor_to_bytes(const Tensor& tensor, void* bytes, DType dtype);
}  // namespace detail

template <class T>
Tensor Tensor::from(std::span<const T> values, Shape shape) {
  return detail::tensor_from_bytes(values.data(), static_cast<std::int64_t>(values.size()), std::move(shape),
                                   dtype_of<T>);
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> values(static_cast<std::size_t>(numel_));
  detail::tensor_to_bytes(*this, values.data(), dtype_of<T>);
  return values;
}

}  // namespace fq
