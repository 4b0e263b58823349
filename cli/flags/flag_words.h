#pragma once

/// Messages of the library in the words of the command line.

#include <string>
#include <string_view>
#include <utility>

#include "fakequant/core/error.h"

namespace fq::cli {

/// The library's messages name fields of its options; here the flags that set them stand in their place.
[[nodiscard]] std::string with_flags(std::string_view message);

/// Calls `use`; what the library throws comes out with flags in its message.
template <class Use>
auto naming_flags(Use&& use) {
  try {
    return std::forward<Use>(use)();
  } catch (const ArgumentError& error) {
    throw ArgumentError(with_flags(error.what()));
  } catch (const FileError& error) {
    throw FileError(error.path(), error.dataset(), with_flags(error.what()));
  } catch (const NumericError& error) {
    throw NumericError(with_flags(error.what()));
  }
}

}  // namespace fq::cli
