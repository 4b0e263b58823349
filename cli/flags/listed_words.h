#pragma once

/// Lists of words in a flag.

#include <algorithm>
#include <string>
#include <vector>

namespace fq::cli {

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
