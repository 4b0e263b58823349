#pragma once

/// Texts of the command line: lists in a flag, and flag names in messages of the library.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/error.h"

namespace fq::cli {

/// Replaces the option fields in a message of the library by the flags that set them.
[[nodiscard]] std::string with_flags(std::string_view message);

/// Calls `use`. Errors of the library name flags instead of option fields.
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

/// Returns the words between commas. Does not use std::getline, which drops words without an error if memory
/// is exhausted.
[[nodiscard]] inline std::vector<std::string> listed_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace fq::cli
