#include "fakequant/core/io/detail/json_text.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <unordered_set>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

// Limits for texts from outside: memory, and recursion of readers of nested values.
constexpr std::size_t kLargestText = std::size_t{16} << 20;
constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostKeys = 10000;  // readers search them linearly

/// Reads characters and counts lines. The lexer reads one character past a number, so the current line is
/// the line of the last character that is not white space.
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

/// Returns nlohmann's error text without its number and position. A quoted part may end inside a character
/// or may not be valid UTF-8.
std::string plain(std::string_view text) {
  if (const auto column = text.find(", column "); column != std::string_view::npos)
    text = text.substr(std::min(text.find(": ", column) + 2, text.size()));
  else
    text = text.substr(text.find("] ") + 2);
  std::string out(text.substr(0, 240));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return out;
}

/// The keys of one object. A new key is compared with all previous ones while they are few.
class Keys {
 public:
  /// Returns false for a key that exists.
  bool add(const ordered_json::object_t& object, const std::string& key) {
    if (object.size() < kFew)
      return std::ranges::none_of(object, [&](const auto& member) { return member.first == key; });
    if (index_.empty())
      for (const auto& member : object) index_.insert(member.first);
    return index_.insert(key).second;
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::unordered_set<std::string> index_;
};

/// Builds the value. The member functions implement nlohmann's SAX interface.
class Builder {
 public:
  Builder(ordered_json& root, const int& line) : root_(root), line_(line) {}

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
    auto& [container, keys] = open_.back();
    const auto& object = container->get_ref<const ordered_json::object_t&>();
    if (!keys.add(object, key)) return stop(fmt::format("the key '{}' is given twice", key.substr(0, 80)));
    if (object.size() >= kMostKeys) return stop(fmt::format("an object has more than {} keys", kMostKeys));
    key_ = std::move(key);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    return stop(plain(error.what()));
  }

  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] int error_line() const noexcept { return error_line_; }

 private:
  struct Open {
    ordered_json* value;
    Keys keys;
  };

  bool stop(std::string message) {
    error_ = std::move(message);
    error_line_ = line_;
    return false;
  }
  bool put(ordered_json value) {
    place(std::move(value));
    return true;
  }
  // Appends the value to the innermost open container. The address stays valid while the container is open,
  // as its parents get no new members meanwhile.
  ordered_json* place(ordered_json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    ordered_json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& object = parent.get_ref<ordered_json::object_t&>();  // operator[] would search the key again
    return &static_cast<Members&>(object).emplace_back(std::move(key_), std::move(value)).second;
  }
  bool open(ordered_json value) {
    if (open_.size() >= kDeepest) return stop(fmt::format("more than {} levels of nesting", kDeepest));
    open_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  using Members = ordered_json::object_t::Container;

  ordered_json& root_;
  const int& line_;
  std::vector<Open> open_;  // the containers around the next value
  std::string key_, error_;
  int error_line_ = 1;
};

/// Follows a JSON pointer through a text and stops at its target. The member functions implement nlohmann's
/// SAX interface.
class LineFinder {
 public:
  LineFinder(std::vector<std::string> steps, const int& line) : steps_(std::move(steps)), line_(line) {}

  /// Returns the line of the last step of the pointer that was found.
  [[nodiscard]] int found() const noexcept { return found_; }

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(std::int64_t) { return value(); }
  bool number_unsigned(std::uint64_t) { return value(); }
  bool number_float(double, const std::string&) { return value(); }
  bool string(std::string&) { return value(); }
  bool binary(ordered_json::binary_t&) { return false; }
  bool start_object(std::size_t) { return start(false); }
  bool start_array(std::size_t) { return start(true); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& key) {
    if (open_.back().on_way) step(json_pointer_token(key));
    return !is_found();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  struct Open {
    bool on_way, is_array;
    std::size_t size;
  };

  [[nodiscard]] bool is_found() const { return entered_ && taken_ == steps_.size(); }

  void step(const std::string& name) {
    next_ = name == steps_[taken_];
    if (!next_) return;
    ++taken_;
    found_ = line_;
  }
  /// Whether the value that begins is on the path of the pointer.
  bool begin() {
    if (open_.empty()) {
      found_ = line_;
      return entered_ = true;
    }
    auto& around = open_.back();
    if (around.on_way && around.is_array) step(std::to_string(around.size++));
    return std::exchange(next_, false);
  }
  bool value() { return !begin(); }
  bool start(bool is_array) {
    open_.push_back({begin(), is_array, 0});
    return !is_found();
  }
  /// Returns false at the end of a container on the path: it lacks the next step.
  bool end() {
    const bool on_way = open_.back().on_way;
    open_.pop_back();
    return !on_way;
  }

  std::vector<std::string> steps_;
  const int& line_;
  std::vector<Open> open_;
  std::size_t taken_ = 0;
  int found_ = 1;
  bool entered_ = false, next_ = false;
};

std::vector<std::string> pointer_steps(const std::string& pointer) {
  std::vector<std::string> steps;
  for (std::size_t begin = 1; begin <= pointer.size() && !pointer.empty();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    steps.push_back(pointer.substr(begin, end - begin));
    begin = end + 1;
  }
  return steps;
}

/// Passes the events of `text` to `events`; `line` is the line of the latest event. Returns false if
/// `events` stopped.
template <class Events>
bool read_json(const std::string& text, Events& events, int& line) {
  const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
  return ordered_json::sax_parse(begin, end, &events, nlohmann::detail::input_format_t::json, true, true);
}

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
    : what_(std::move(what)), file_(std::move(file)), text_(text) {
  if (text_.size() > kLargestText) raise(what_, file_, "", 1, "the text is larger than 16 MiB");
  int line = 1;
  Builder builder(value_, line);
  if (!read_json(text_, builder, line)) raise(what_, file_, "", builder.error_line(), builder.error());
}

JsonText JsonText::from_value(ordered_json value, std::string text, std::string what) {
  JsonText out;
  out.what_ = std::move(what);
  out.text_ = std::move(text);
  out.value_ = std::move(value);
  return out;
}

std::shared_ptr<const JsonText> JsonText::load(const std::string& file, std::string what) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw FileError(file, "", fmt::format("[{}] '{}' is a folder: use a file", what, file));
  if (!std::filesystem::is_regular_file(file, error))
    throw FileError(file, "", fmt::format("[{}] there is no file '{}'", what, file));
  const FileReader bytes(file);
  std::string text(std::min(static_cast<std::size_t>(bytes.size()), kLargestText + 1), '\0');
  bytes.read(0, text.data(), text.size());
  return std::make_shared<const JsonText>(text, std::move(what), file);
}

// Parses the text again: lines are needed for errors only, and values carry no positions.
int JsonText::line(const std::string& pointer) const {
  int line = 1;
  LineFinder finder(pointer_steps(pointer), line);
  read_json(text_, finder, line);
  return finder.found();
}

void JsonText::fail(const std::string& pointer, const std::string& message) const {
  raise(what_, file_, pointer, line(pointer), message);
}

}  // namespace fq::detail
