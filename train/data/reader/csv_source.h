#pragma once

/// Tables in CSV files as samples.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/csv_schema.h"

namespace fq::detail {

/// Rows of numbers, f32 [F], read twice: what there is, then the values.
class CsvSource final : public SampleSource {
 public:
  /// Looks through the file. With `schema`, of a file before, columns are found by their names, categories
  /// and classes are those, and others are errors. Throws FileError, naming line, column and value: no
  /// records, a record of another number of fields, text where numbers are, values that are missing (by the
  /// options), labels that do not fit; ArgumentError for columns that are not there.
  CsvSource(const std::string& path, CsvOptions options, const CsvSchema* schema = nullptr);

  [[nodiscard]] std::int64_t size() const override { return rows_; }
  [[nodiscard]] const SampleType& type() const override { return type_; }
  [[nodiscard]] bool read(std::int64_t row, std::byte* to) override;
  [[nodiscard]] std::string place_of(std::int64_t row) const override;

  [[nodiscard]] const CsvSchema& schema() const noexcept { return schema_; }
  [[nodiscard]] const Labels& labels() const noexcept { return labels_; }
  /// Records that were passed over because a value is missing.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }

 private:
  void check_field(const CsvSchema::Feature& feature, const CsvReader& from) const;
  [[nodiscard]] bool is_complete(const CsvReader& from) const;
  void take_decimals();
  [[nodiscard]] bool next_kept(CsvReader& from);
  void put(std::byte* to) const;

  std::string path_;
  CsvOptions options_;
  CsvSchema schema_;
  Labels labels_;
  SampleType type_;
  std::int64_t rows_ = 0, skipped_ = 0, next_ = 0;
  std::unique_ptr<CsvReader> reader_;
  std::vector<std::string> fields_;
};

}  // namespace fq::detail
