#pragma once

/// The first look through a table: labels, texts of columns, and means.

#include <set>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/csv_schema.h"
#include "fakequant/train/data/reader/label_collector.h"

namespace fq::detail {

/// Takes the records that are kept, in their order.
class CsvSurvey {
 public:
  /// `known`: whether the schema is that of a table before, whose texts and classes are all there are.
  CsvSurvey(CsvSchema& schema, const CsvOptions& options, bool known);

  /// Throws FileError, naming the line, for texts and labels that do not fit.
  void add(const std::vector<std::string>& fields, const CsvReader& reader);
  /// The labels of all; puts texts, means and classes into the schema. Throws FileError for columns without a
  /// number and labels that are no classes.
  [[nodiscard]] Labels finish(const std::string& path);

 private:
  void take_text(std::size_t feature, const std::string& field, const CsvReader& reader);
  void take_label(const std::string& field, const CsvReader& reader);
  void finish_columns(const std::string& path);
  [[nodiscard]] Labels class_labels(const std::string& path);
  void check_are_classes(const std::string& path) const;

  CsvSchema& schema_;
  const CsvOptions& options_;
  bool known_;
  std::vector<std::set<std::string>> texts_;
  std::vector<double> sums_, last_;
  std::vector<bool> counts_on_;  // whether each number so far is one more than the one before
  std::vector<std::int64_t> counts_;
  LabelCollector labels_;
  std::vector<float> numbers_;
};

}  // namespace fq::detail
