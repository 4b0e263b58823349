#pragma once

/// One owner for every handle that a C interface gives out and takes back.

#include <utility>

namespace fq::cuda {

/// Gives the handle to Destroy when it goes, whose answer is not looked at: destructors never throw.
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
  Handle(const Handle&) = delete;  // one owner
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] T get() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != T{}; }
  /// Where a C function puts a new handle; the old one goes first.
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
