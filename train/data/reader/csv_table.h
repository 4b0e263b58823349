#pragma once

/// Tables in CSV files: which columns are numbers, categories and the label.

#include <map>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/csv_reader.h"
#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// What becomes of a record with a field that is empty, or NA, N/A, NaN, null or none, in any case, or "?".
enum class Missing { error, skip, mean };

struct CsvOptions {
  char delimiter = 0;                     ///< 0: see CsvReader
  std::string header = "auto";            ///< yes, no; auto: one whose first record has no number
  std::string label = {};                 ///< the column of labels; empty: none
  Task task = Task::classes;              ///< classes or real
  std::vector<std::string> columns = {};  ///< the only ones; empty: all but the label and `drop`
  std::vector<std::string> drop = {};
  std::vector<std::string> one_hot = {};  ///< columns of text: one number for each text there is
  std::vector<std::string> known = {};    ///< "colour=red": the texts there are, of another table
  Missing missing = Missing::error;
  std::vector<std::string> class_names = {};  ///< the classes in their order; empty: as they are found
};

/// What a table is read by: its columns, and what was found in them.
struct CsvSchema {
  std::vector<std::string> header;  ///< names, "0", "1", .. without them
  bool has_header = false;
  std::int64_t label = -1;
  struct Feature {
    std::size_t column;
    bool text = false;                    ///< one number for each of
    std::vector<std::string> categories;  ///< its texts, sorted
    double mean = 0;                      ///< of numbers
  };
  std::vector<Feature> features;
  std::vector<std::string> class_names;
};

/// The column of that name, or of that place from 0. Throws ArgumentError, naming the nearest, where there is
/// none, or more than one.
[[nodiscard]] std::size_t csv_column(const std::vector<std::string>& header, const std::string& name,
                                     const std::string& path);
/// Names of columns, which may also be given by their place from 0.
[[nodiscard]] std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options);

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
  class Survey;
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
