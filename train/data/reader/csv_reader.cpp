#include "fakequant/train/data/reader/csv_reader.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kCsvPiece = 1 << 20;
constexpr std::size_t kMostFields = 1 << 16, kMostRecord = 16 << 20;
constexpr int kEnd = -1;

void strip(std::string& field) {
  field.erase(0, std::min(field.find_first_not_of(" \t"), field.size()));
  field.erase(field.find_last_not_of(" \t") + 1);
}

}  // namespace

CsvReader::CsvReader(const std::string& path, char delimiter)
    : bytes_(open_stream(path)), delimiter_(delimiter) {
  fill();
  if (buffer_.starts_with("\xff\xfe") || buffer_.starts_with("\xfe\xff"))
    bytes_->fail("is UTF-16: write it as UTF-8, by iconv -f UTF-16 -t UTF-8");
  if (buffer_.starts_with("\xef\xbb\xbf")) at_ = 3;
  if (buffer_.find('\0') != buffer_.npos) bytes_->fail("is not text: it has bytes of 0");
  if (delimiter_ == 0) choose_delimiter();
}

void CsvReader::fail(const std::string& why) const {
  throw FileError(path(), "", fmt::format("[dataset] {}: line {} {}", path(), line_, why));
}

void CsvReader::fill() {
  buffer_.resize(std::size_t(std::min(bytes_->at_most(), kCsvPiece)));
  buffer_.resize(bytes_->read_some(buffer_.data(), buffer_.size()));
  at_ = 0;
}

int CsvReader::peek() {
  if (at_ == buffer_.size()) fill();
  return buffer_.empty() ? kEnd : static_cast<unsigned char>(buffer_[at_]);
}

int CsvReader::take() {
  const int c = peek();
  if (c == kEnd) return c;
  ++at_;
  if (c == '\n') ++next_line_;
  if (++record_bytes_ > kMostRecord)
    fail(fmt::format("has more than {} bytes: is a quote open?", kMostRecord));
  return c;
}

void CsvReader::choose_delimiter() {
  const std::string first = buffer_.substr(at_, buffer_.find('\n', at_) - at_);
  bool quoted = false;
  std::array<std::int64_t, 4> counts{};
  constexpr std::string_view kMarks = ",;\t|";
  for (const char c : first) {
    quoted ^= c == '"';
    if (const auto mark = kMarks.find(c); !quoted && mark != kMarks.npos) ++counts[mark];
  }
  delimiter_ = kMarks[std::size_t(std::ranges::max_element(counts) - counts.begin())];
}

void CsvReader::take_quoted(std::string& field) {
  take();
  for (;;) {
    const int c = take();
    if (c == kEnd) fail("opens a quote that nothing closes");
    if (c == '"' && peek() != '"') break;
    if (c == '"') take();
    field += char(c);
  }
  while (peek() == ' ' || (peek() == '\t' && delimiter_ != '\t')) take();
  const int after = peek();
  if (after != kEnd && after != delimiter_ && after != '\n' && after != '\r')
    fail(fmt::format("has text behind the quoted '{}': quotes in a field are doubled", printable(field)));
}

void CsvReader::take_field(std::string& field) {
  field.clear();
  while (peek() == ' ') take();
  if (peek() == '"') return take_quoted(field);
  for (int c = peek(); c != kEnd && c != delimiter_ && c != '\n' && c != '\r'; c = peek())
    field += char(take());
  strip(field);
}

bool CsvReader::next(std::vector<std::string>& fields) {
  while (peek() == '\n' || peek() == '\r') take();
  if (peek() == kEnd) return false;
  line_ = next_line_;
  record_bytes_ = 0;
  std::size_t count = 0;
  for (;;) {
    if (count == kMostFields) fail(fmt::format("has more than {} fields", kMostFields));
    if (fields.size() == count) fields.emplace_back();
    take_field(fields[count]);
    if (valid_utf8(fields[count]) != fields[count])
      fail(fmt::format("is not UTF-8 at '{}': write the file as UTF-8, by iconv -f LATIN1 -t UTF-8",
                       printable(fields[count])));
    ++count;
    if (peek() != delimiter_) break;
    take();
  }
  if (peek() == '\r') take();
  if (peek() == '\n') take();
  fields.resize(count);
  return true;
}

}  // namespace fq::detail
