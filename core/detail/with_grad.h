#pragma once

/// Recording within a backward pass.

namespace fq::detail {

/// While it lives, this thread records, whatever NoGrad is around it.
class WithGrad {
 public:
  WithGrad() noexcept;
  ~WithGrad();
  WithGrad(const WithGrad&) = delete;  // scopes nest, they are not handed on
  WithGrad& operator=(const WithGrad&) = delete;

 private:
  bool previous_;
};

}  // namespace fq::detail
