#include "fakequant/core/json_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLargestText = std::size_t{16} << 20;
constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostKeys = 10000;  // looked up one after the other

/// Hands out characters and counts lines. The lexer reads one character past a number, so the line that
/// counts is that of the last character that is not white space.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    const char c = *at_++;
    newlines_ += c == '\n' ? 1 : 0;
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') *line_ = newlines_ + 1;
    return *this;
  }
  CountingIterator operator++(int) {
    const auto before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int newlines_ = 0;
  int* line_;
};

/// What nlohmann says, without its number and place.
std::string plain(std::string_view text) {
  if (const auto column = text.find(", column "); column != std::string_view::npos)
    text = text.substr(std::min(text.find(": ", column) + 2, text.size()));
  else
    text = text.substr(text.find("] ") + 2);
  return std::string(text.substr(0, 240));
}

/// Builds the value and notes the line of everything in it; the calls are those of nlohmann's SAX interface.
class Builder {
 public:
  Builder(ordered_json& root, std::unordered_map<std::string, int>& lines, const int& line)
      : root_(root), lines_(lines), line_(line) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(ordered_json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(ordered_json::object()); }
  bool start_array(std::size_t) { return open(ordered_json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    auto& [object, pointer] = open_.back();
    if (object->contains(key)) return stop(fmt::format("the key '{}' is given twice", key.substr(0, 80)));
    if (object->size() >= kMostKeys) return stop(fmt::format("an object has more than {} keys", kMostKeys));
    key_ = key;
    lines_.emplace(pointer + "/" + json_pointer_token(key), line_);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    return stop(plain(error.what()));
  }

  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] int error_line() const noexcept { return error_line_; }

 private:
  bool stop(std::string message) {
    error_ = std::move(message);
    error_line_ = line_;
    return false;
  }
  bool put(ordered_json value) {
    place(std::move(value));
    return true;
  }
  std::pair<ordered_json*, std::string> place(ordered_json value) {
    if (open_.empty()) {
      lines_.emplace("", line_);
      root_ = std::move(value);
      return {&root_, ""};
    }
    auto& [parent, pointer] = open_.back();
    if (parent->is_object())
      return {&((*parent)[key_] = std::move(value)), pointer + "/" + json_pointer_token(key_)};
    auto path = pointer + "/" + std::to_string(parent->size());
    lines_.emplace(path, line_);
    parent->push_back(std::move(value));
    return {&parent->back(), std::move(path)};
  }
  bool open(ordered_json value) {
    if (open_.size() >= kDeepest) return stop(fmt::format("more than {} levels of nesting", kDeepest));
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ordered_json& root_;
  std::unordered_map<std::string, int>& lines_;
  const int& line_;
  std::vector<std::pair<ordered_json*, std::string>> open_;  // the containers around the next value
  std::string key_, error_;
  int error_line_ = 1;
};

[[noreturn]] void raise(const std::string& what, const std::string& file, const std::string& key, int line,
                        const std::string& message) {
  if (file.empty()) throw ArgumentError(fmt::format("[{}] line {}: {}", what, line, message));
  throw FileError(file, key, fmt::format("[{}] {}:{}: {}", what, file, line, message));
}

}  // namespace

std::string json_pointer_token(const std::string& key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

JsonText::JsonText(std::string_view text, std::string what, std::string file)
    : what_(std::move(what)), file_(std::move(file)) {
  if (text.size() > kLargestText) raise(what_, file_, "", 1, "the text is larger than 16 MiB");
  int line = 1;
  Builder builder(value_, lines_, line);
  const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
  const bool good =
      ordered_json::sax_parse(begin, end, &builder, nlohmann::detail::input_format_t::json, true, true);
  if (!good) raise(what_, file_, "", builder.error_line(), builder.error());
}

std::shared_ptr<const JsonText> JsonText::load(const std::string& file, std::string what) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    throw FileError(file, "", fmt::format("[{}] there is no file '{}'", what, file));
  std::ifstream in(file, std::ios::binary);
  std::string text(kLargestText + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || !(in.is_open()))
    throw FileError(file, "", fmt::format("[{}] '{}' can't be read", what, file));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return std::make_shared<const JsonText>(text, std::move(what), file);
}

int JsonText::line(std::string pointer) const {
  while (true) {
    const auto found = lines_.find(pointer);
    if (found != lines_.end()) return found->second;
    if (pointer.empty()) return 1;
    pointer.resize(pointer.rfind('/'));
  }
}

void JsonText::fail(const std::string& pointer, const std::string& message) const {
  raise(what_, file_, pointer, line(pointer), message);
}

}  // namespace fq::detail
