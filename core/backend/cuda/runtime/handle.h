#pragma once

/// Owner of a handle of a C library.

#include <utility>

namespace fq::cuda {

/// Owns a handle and passes it to Destroy in the destructor. The result of Destroy is ignored, because
/// destructors must not throw.
template <class T, auto Destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) noexcept : handle_(handle) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, T{});
    }
    return *this;
  }
  Handle(const Handle&) = delete;  // single owner
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] T get() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != T{}; }
  /// Returns the address for a C function that creates a handle. Destroys the old handle first.
  [[nodiscard]] T* out() noexcept {
    reset();
    return &handle_;
  }

 private:
  void reset() noexcept {
    if (handle_ != T{}) static_cast<void>(Destroy(handle_));
    handle_ = T{};
  }

  T handle_{};
};

}  // namespace fq::cuda
