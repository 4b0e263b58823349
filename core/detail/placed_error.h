#pragma once

/// Errors in a JSON text, with the position of the value. Only the caller knows the lines of the text.

#include <string>
#include <utility>

#include "fakequant/core/error.h"

namespace fq::detail {

/// An ArgumentError for the value at `pointer`, a JSON pointer (RFC 6901): "/rules/3/num_bits".
class PlacedError : public ArgumentError {
 public:
  PlacedError(std::string pointer, const std::string& message)
      : ArgumentError(message), pointer_(std::move(pointer)) {}
  [[nodiscard]] const std::string& pointer() const noexcept { return pointer_; }

 private:
  std::string pointer_;
};

/// Calls `read` and adds the position `step` ("/rules") to its ArgumentErrors, as a prefix if they have a
/// position already. An empty step changes nothing.
template <class Read>
decltype(auto) locate_errors(const std::string& step, Read&& read) try {
  return std::forward<Read>(read)();
} catch (const PlacedError& error) {
  throw PlacedError(step + error.pointer(), error.what());
} catch (const ArgumentError& error) {
  if (step.empty()) throw;
  throw PlacedError(step, error.what());
}

}  // namespace fq::detail
