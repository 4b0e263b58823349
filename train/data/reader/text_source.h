#pragma once

/// Texts as samples of tokens.

#include <functional>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/label_collector.h"
#include "fakequant/train/data/reader/sample_source.h"
#include "fakequant/train/data/reader/tokens.h"

namespace fq::detail {

/// Texts in their order: lines of a file, fields of a table, files of a folder.
class TextList {
 public:
  virtual ~TextList() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Text `i`, UTF-8 or any other bytes, asked for in ascending order, or again from the first.
  [[nodiscard]] virtual std::string text(std::int64_t i) = 0;
  [[nodiscard]] virtual std::string place_of(std::int64_t i) const = 0;
};

/// The lines of a file, without their ends, in gzip too; at most 16 MiB a line. Empty ones are samples too.
[[nodiscard]] std::unique_ptr<TextList> text_lines(const std::string& path);
/// A column of a CSV file; `labels` takes those of the column `label`, unless that is empty. Throws
/// FileError, naming the line, for labels that are missing or not among their names.
[[nodiscard]] std::unique_ptr<TextList> text_column(const std::string& path, char delimiter,
                                                    const std::string& column, const std::string& label,
                                                    LabelCollector& labels);
/// A label on each line. Throws likewise.
void label_lines(const std::string& path, LabelCollector& labels);
/// Whole files, at most 16 MiB each.
[[nodiscard]] std::unique_ptr<TextList> text_files(std::vector<std::string> paths);

/// The first `length` tokens of each text, i32 [length].
class TextSource final : public SampleSource {
 public:
  TextSource(std::unique_ptr<TextList> texts, std::int64_t length);

  /// What tokens are; before the first sample is read.
  void use(Tokenizer tokenizer) { tokenizer_ = std::move(tokenizer); }
  [[nodiscard]] TextList& texts() noexcept { return *texts_; }
  /// Texts that were longer, of those read.
  [[nodiscard]] std::int64_t cut() const noexcept { return cut_; }

  [[nodiscard]] std::int64_t size() const override { return texts_->size(); }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override { return texts_->place_of(row); }

 private:
  std::unique_ptr<TextList> texts_;
  Tokenizer tokenizer_;
  SampleType type_;
  std::vector<std::int32_t> ids_;
  std::int64_t cut_ = 0;
};

}  // namespace fq::detail
