#include "fakequant/train/data/reader/text_source.h"

#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/train/data/reader/byte_stream.h"
#include "fakequant/train/data/reader/csv_fields.h"
#include "fakequant/train/data/reader/csv_schema.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kTextPiece = 1 << 20;
constexpr std::size_t kMostText = 16 << 20;

/// Lines one after another.
class Lines {
 public:
  explicit Lines(const std::string& path) : bytes_(open_stream(path)) {}

  bool next(std::string& line) {
    line.clear();
    for (bool any = false;; any = true) {
      if (at_ == buffer_.size()) {
        buffer_.resize(std::size_t(std::min(bytes_->at_most(), kTextPiece)));
        buffer_.resize(bytes_->read_some(buffer_.data(), buffer_.size()));
        at_ = 0;
        if (buffer_.empty()) return any && finish(line);
      }
      const auto end = std::min(buffer_.find('\n', at_), buffer_.size());
      line.append(buffer_, at_, end - at_);
      if (line.size() > kMostText) bytes_->fail(fmt::format("has a line of more than {} bytes", kMostText));
      at_ = end;
      if (end == buffer_.size()) continue;
      ++at_;
      return finish(line);
    }
  }

 private:
  static bool finish(std::string& line) {
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  std::size_t at_ = 0;
};

class TextLines final : public TextList {
 public:
  explicit TextLines(const std::string& path) : path_(path) {
    Lines all(path_);
    for (std::string line; all.next(line);) ++size_;
    if (size_ == 0) throw FileError(path_, "", fmt::format("[dataset] {} has no lines", path_));
  }

  std::int64_t size() const override { return size_; }
  std::string text(std::int64_t i) override {
    if (!lines_ || i < next_) lines_ = std::make_unique<Lines>(path_), next_ = 0;
    std::string line;
    for (; next_ <= i; ++next_)
      if (!lines_->next(line))
        throw FileError(path_, "", fmt::format("[dataset] {} became shorter while it was read", path_));
    return line;
  }
  std::string place_of(std::int64_t i) const override { return fmt::format("{}: line {}", path_, i + 1); }

 private:
  std::string path_;
  std::unique_ptr<Lines> lines_;
  std::int64_t size_ = 0, next_ = 0;
};

class TextFiles final : public TextList {
 public:
  explicit TextFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  std::int64_t size() const override { return std::int64_t(paths_.size()); }
  std::string text(std::int64_t i) override { return read_file(place_of(i), std::int64_t(kMostText)); }
  std::string place_of(std::int64_t i) const override { return paths_[std::size_t(i)]; }

 private:
  std::vector<std::string> paths_;
};

class TextColumn final : public TextList {
 public:
  TextColumn(const std::string& path, char delimiter, std::size_t column, std::vector<std::int64_t> lines)
      : path_(path), delimiter_(delimiter), column_(column), lines_(std::move(lines)) {}

  std::int64_t size() const override { return std::int64_t(lines_.size()); }
  std::string text(std::int64_t i) override {
    if (!reader_ || i < next_) {
      reader_ = std::make_unique<CsvReader>(path_, delimiter_);
      (void)reader_->next(fields_);
      next_ = 0;
    }
    for (; next_ <= i; ++next_)
      if (!reader_->next(fields_) || fields_.size() <= column_)
        throw FileError(path_, "", fmt::format("[dataset] {} changed while it was read", path_));
    return fields_[column_];
  }
  std::string place_of(std::int64_t i) const override {
    return fmt::format("{}: line {}", path_, lines_[std::size_t(i)]);
  }

 private:
  std::string path_;
  char delimiter_;
  std::size_t column_;
  std::vector<std::int64_t> lines_;
  std::unique_ptr<CsvReader> reader_;
  std::vector<std::string> fields_;
  std::int64_t next_ = 0;
};

template <class Fail>
void take_label(const std::string& text, LabelCollector& labels, Fail&& fail) {
  if (is_missing(text)) fail("has no label");
  if (!labels.add(text))
    fail(fmt::format("has the label '{}'{}", printable(text), did_you_mean(text, labels.names())));
}

}  // namespace

void label_lines(const std::string& path, LabelCollector& labels) {
  const TextLines lines(path);
  Lines all(path);
  std::int64_t row = 0;
  for (std::string line; all.next(line); ++row)
    take_label(line, labels, [&](const std::string& why) {
      throw FileError(path, "", fmt::format("[dataset] {} {}", lines.place_of(row), why));
    });
}

std::unique_ptr<TextList> text_lines(const std::string& path) { return std::make_unique<TextLines>(path); }

std::unique_ptr<TextList> text_files(std::vector<std::string> paths) {
  return std::make_unique<TextFiles>(std::move(paths));
}

std::unique_ptr<TextList> text_column(const std::string& path, char delimiter, const std::string& column,
                                      const std::string& label, LabelCollector& labels) {
  CsvReader reader(path, delimiter);
  std::vector<std::string> header, fields;
  if (!reader.next(header)) throw FileError(path, "", fmt::format("[dataset] {} has no records", path));
  const std::size_t at = csv_column(header, column, path);
  const std::size_t label_at = label.empty() ? header.size() : csv_column(header, label, path);
  std::vector<std::int64_t> lines;
  while (reader.next(fields)) {
    if (fields.size() != header.size())
      reader.fail(fmt::format("has {} fields, the first has {}: fields with a '{}' in them stand in quotes",
                              fields.size(), header.size(), reader.delimiter()));
    if (!label.empty())
      take_label(fields[label_at], labels, [&](const std::string& why) { reader.fail(why); });
    lines.push_back(reader.line());
  }
  if (lines.empty())
    throw FileError(path, "", fmt::format("[dataset] {} has no records below its header", path));
  return std::make_unique<TextColumn>(path, delimiter, at, std::move(lines));
}

TextSource::TextSource(std::unique_ptr<TextList> texts, std::int64_t length)
    : texts_(std::move(texts)),
      type_{.shape = {length}, .dtype = DType::i32, .tokens = true},
      ids_(std::size_t(length)) {}

bool TextSource::read(std::int64_t row, std::byte* to) {
  if (tokenizer_.encode(texts_->text(row), ids_) > std::int64_t(ids_.size())) ++cut_;
  std::memcpy(to, ids_.data(), ids_.size() * sizeof(std::int32_t));
  return true;
}

}  // namespace fq::detail
