#pragma once

/// Records of a CSV file (RFC 4180), also with other delimiters, in gzip, and with a byte order mark.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/byte_stream.h"

namespace fq::detail {

class CsvReader {
 public:
  /// `delimiter` 0: of comma, semicolon, tab and bar the one that the first line has most of.
  explicit CsvReader(const std::string& path, char delimiter = 0);

  /// The next record, empty lines left out; false at the end. Quotes and blanks around unquoted fields are
  /// taken off. Throws FileError, naming the line, for a quote that is not closed, text behind one, more than
  /// 2^16 fields or 16 MiB in a record, and for text that is not UTF-8.
  [[nodiscard]] bool next(std::vector<std::string>& fields);
  /// Of the record that was read, from 1.
  [[nodiscard]] std::int64_t line() const noexcept { return line_; }
  [[nodiscard]] char delimiter() const noexcept { return delimiter_; }
  [[nodiscard]] const std::string& path() const noexcept { return bytes_->place(); }
  /// Throws FileError for something in the record that was read.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  [[nodiscard]] int peek();
  int take();
  void fill();
  void take_field(std::string& field);
  void take_quoted(std::string& field);
  void choose_delimiter();

  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  std::size_t at_ = 0, record_bytes_ = 0;
  std::int64_t line_ = 1, next_line_ = 1;
  char delimiter_;
};

}  // namespace fq::detail
