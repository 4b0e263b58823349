#pragma once

/// Tensor: a dense array with a shape, a dtype, a device and a layout.
///
///     Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});  // two rows, on the CPU
///     Tensor rows = x.slice(1, 2);                                   // a view of the second one
///     Tensor half = x.to(DType::f16).to(Device::cuda());
///     std::vector<float> back = half.to(DType::f32).to_vector<float>();
///
/// A tensor has no gradient. Differentiable operators take a Variable (core/variable.h), which holds a
/// tensor. Arithmetic is in core/ops; this header creates, inspects, moves and converts tensors.

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

/// A handle to storage. Copies share the storage, so a write through one copy is visible in all; `clone()`
/// copies the data.
///
/// A tensor is always dense: it has a layout tag instead of strides. 4-D convolution, pooling and batch norm
/// return channels_last, and so do elementwise operators after them. All other tensors, parameters included,
/// are row-major. Shapes, axes, files, printing and `to_vector()` are logical (NCHW) for every layout.
/// Access to the elements of a channels_last tensor by pointer requires naming this layout. The only views
/// are `reshape` of a row-major tensor and `slice` along axis 0.
///
/// GPU calls return before the work is done. Functions that read values on the host (`to(Device::cpu())`,
/// `item`, `to_vector`, printing) wait for it. On `meta` a tensor has a shape and no bytes. Several threads
/// may read one tensor; a writer needs exclusive access.
class Tensor {
 public:
  /// Undefined: no shape and no storage. Some operators and options accept it as "not given"; their
  /// documentation says so.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  /// Moves; the moved-from tensor becomes undefined.
  Tensor(Tensor&& from) noexcept { swap(from); }
  Tensor& operator=(Tensor&& from) noexcept {
    Tensor(std::move(from)).swap(*this);
    return *this;
  }
  ~Tensor() = default;

  /// Creates a tensor with unspecified contents. Throws ArgumentError for a negative size, for more than
  /// 2^60 elements, and for channels_last with a rank other than 4. Throws SystemError if memory is
  /// exhausted, BackendError if the device cannot be used.
  [[nodiscard]] static Tensor empty(Shape shape, DType dtype = DType::f32, Device device = Device::cpu(),
                                    Layout layout = Layout::row_major);
  /// As `empty`, with all bytes 0: the value zero in every dtype except f8_e8m0, which has no zero (the
  /// value is 2^-127).
  [[nodiscard]] static Tensor zeros(Shape shape, DType dtype = DType::f32, Device device = Device::cpu(),
                                    Layout layout = Layout::row_major);
  /// As `empty`, with every element set to `value`, rounded as by `to(DType)`. Not for dtypes of fewer than
  /// 8 bits.
  [[nodiscard]] static Tensor full(Shape shape, double value, DType dtype = DType::f32,
                                   Device device = Device::cpu(), Layout layout = Layout::row_major);
  /// Creates a tensor of rank 0 (one element) on the CPU.
  [[nodiscard]] static Tensor scalar(double value, DType dtype = DType::f32);
  /// Wraps memory of another owner without copying it. The memory must have the size that dtype and shape
  /// require, in the given layout. `release` is called when the last handle goes (Storage::borrow). Throws
  /// ArgumentError as `empty`, and for a null pointer if there are elements.
  [[nodiscard]] static Tensor borrow(void* data, Shape shape, DType dtype, std::function<void()> release = {},
                                     Device device = Device::cpu(), Layout layout = Layout::row_major);
  /// Copies host values in row-major order to the CPU, with the dtype of their C++ type (`cpp_dtype<T>`).
  /// `shape` defaults to one axis of the list's length. Throws ArgumentError if the number of values differs
  /// from the number of elements of the shape.
  template <class T>
  [[nodiscard]] static Tensor from(std::span<const T> values, Shape shape);
  /// As above, from a vector.
  template <class T>
  [[nodiscard]] static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>(values), std::move(shape));
  }
  /// As above, from a list: `Tensor::from<float>({1, 2, 3, 4}, {2, 2})`.
  template <class T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }
  template <class T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }

  /// False for a default-constructed or moved-from tensor and its copies.
  [[nodiscard]] bool defined() const noexcept { return storage_.defined(); }
  /// Logical sizes (N, C, H, W for an image activation) in any layout; empty for rank 0 and when undefined.
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// Returns the size along `axis`; negative axes count from the back. Throws ArgumentError if out of range.
  [[nodiscard]] std::int64_t dim(int axis) const;
  /// The number of axes; 0 when undefined.
  [[nodiscard]] int rank() const noexcept { return static_cast<int>(shape_.size()); }
  /// The number of elements: the product of the sizes, which is 1 for rank 0; 0 when undefined.
  [[nodiscard]] std::int64_t numel() const noexcept { return numel_; }
  /// The element type; f32 when undefined.
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// Device of the elements; the CPU when undefined.
  [[nodiscard]] Device device() const noexcept { return storage_.device(); }
  /// Memory order of the elements. Does not affect shape, axes or indices.
  [[nodiscard]] Layout layout() const noexcept { return layout_; }
  /// Bytes of the elements, rounded up to whole bytes for packed dtypes. For a view, only its own elements
  /// count.
  [[nodiscard]] std::int64_t nbytes() const noexcept { return byte_size(dtype_, numel_); }
  /// The storage, possibly shared with other handles and views. The elements of a view may begin after its
  /// first byte.
  [[nodiscard]] const Storage& storage() const noexcept { return storage_; }
  /// Version of the storage, which changes with each write through any handle or view. Caches derived from a
  /// tensor (weight codes, values saved for backward) use it to detect outdated data.
  [[nodiscard]] std::uint64_t version() const noexcept { return storage_.version(); }

  /// Returns the elements in row-major order, valid while any handle of the storage lives. Throws
  /// ArgumentError if the tensor is undefined or has another dtype or layout, BackendError if it is not on
  /// the CPU.
  template <class T>
  [[nodiscard]] const T* data() const {
    return data<T>(Layout::row_major);
  }
  /// Returns the elements in memory order, which must be `layout`.
  template <class T>
  [[nodiscard]] const T* data(Layout layout) const {
    check_access(cpp_dtype<T>, layout);
    return static_cast<const T*>(raw());
  }
  /// As `data`, for writing; changes the version.
  template <class T>
  [[nodiscard]] T* mutable_data() {
    return mutable_data<T>(Layout::row_major);
  }
  template <class T>
  [[nodiscard]] T* mutable_data(Layout layout) {
    check_access(cpp_dtype<T>, layout);
    return static_cast<T*>(mutable_raw());
  }
  /// Returns the first byte in memory order, for any dtype and layout, in the device's memory. The host
  /// cannot read GPU memory. Null on `meta` and when undefined.
  [[nodiscard]] const void* raw() const noexcept {
    return storage_.data() == nullptr ? nullptr : storage_.data() + offset_;
  }
  /// As `raw`, for writing; changes the version.
  [[nodiscard]] void* mutable_raw() noexcept {
    auto* bytes = storage_.mutable_data();
    return bytes == nullptr ? nullptr : bytes + offset_;
  }
  /// Changes the version, so that caches derived from the contents are recomputed. For code that wrote
  /// through an older pointer.
  void mark_written() noexcept { storage_.mark_written(); }

  /// Copies the contents to new storage with the same layout and device. The clone of a view has only its
  /// elements. An undefined tensor stays undefined.
  [[nodiscard]] Tensor clone() const;
  /// Converts each element. Floats round to nearest even, and 16-bit floats overflow to infinity. Integers
  /// round half to even and saturate; NaN becomes 0. Returns this tensor itself if the dtype is the same.
  /// Both types must have at least 8 bits; pack_codes and unpack_codes (core/quantized.h) convert the
  /// others.
  [[nodiscard]] Tensor to(DType dtype) const;
  /// Copies the contents to another device; returns this tensor itself if it is already there. A copy to the
  /// CPU waits for the GPU and throws as `synchronize` (core/device.h).
  [[nodiscard]] Tensor to(Device device) const;
  /// Converts to another layout with equal logical values; returns this tensor itself if it has that layout.
  /// Throws ArgumentError for channels_last with a rank other than 4.
  [[nodiscard]] Tensor to(Layout layout) const;
  /// Returns a view with another shape and the same number of elements. One size may be -1 and is then
  /// computed. Throws ArgumentError for a channels_last tensor (use ops::reshape, which moves the elements)
  /// and for another number of elements.
  [[nodiscard]] Tensor reshape(Shape shape) const;
  /// Returns a view of rows [begin, end) of axis 0. Throws ArgumentError if out of range, and for a packed
  /// dtype if the rows do not begin at a whole byte.
  [[nodiscard]] Tensor slice(std::int64_t begin, std::int64_t end) const;
  /// Overwrites the contents with `source`; all handles and views of the storage see the new values. Throws
  /// ArgumentError if shape or dtype differ. Layout and device may differ.
  void copy_from(const Tensor& source);

  /// Copies the elements in logical row-major order, from any device and layout. Throws ArgumentError if
  /// undefined, or if T is not the C++ type of the dtype (convert with `to` first).
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const;
  /// Returns the only element as double; waits for a GPU. Throws ArgumentError if the number of elements is
  /// not 1.
  [[nodiscard]] double item() const;
  /// Returns shape, dtype, device and layout as text: "f32 [64, 3, 28, 28] cpu channels_last". Reads no
  /// values.
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
  /// Returns a tensor without storage.
  [[nodiscard]] static Tensor described(Shape shape, DType dtype, Layout layout);
  void check_access(DType dtype, Layout layout) const;

  Storage storage_;
  Shape shape_;
  std::int64_t numel_ = 0;
  std::int64_t offset_ = 0;  // bytes
  DType dtype_ = DType::f32;
  Layout layout_ = Layout::row_major;
};

/// Prints values in logical order (long axes abbreviated), then shape, dtype and device. For packed types it
/// prints a hint to dequantize.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Whether shape, dtype and bits are equal, compared in logical order (layouts may differ). Two NaNs of
/// equal bits are equal; -0 and 0 are not.
[[nodiscard]] bool bitwise_equal(const Tensor& a, const Tensor& b);

namespace detail {
Tensor tensor_from_bytes(const void* bytes, std::int64_t count, Shape shape, DType dtype);
void tensor_to_bytes(const Tensor& tensor, void* bytes, DType dtype);
}  // namespace detail

template <class T>
Tensor Tensor::from(std::span<const T> values, Shape shape) {
  return detail::tensor_from_bytes(values.data(), static_cast<std::int64_t>(values.size()), std::move(shape),
                                   cpp_dtype<T>);
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> values(static_cast<std::size_t>(numel_));
  detail::tensor_to_bytes(*this, values.data(), cpp_dtype<T>);
  return values;
}

}  // namespace fq
