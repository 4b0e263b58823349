#pragma once

/// Words of the command line: lists in a flag, and flags in messages of the library.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// What stands between commas. Not by std::getline, which ends a list without a word where memory ends.
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
