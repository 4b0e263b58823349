#pragma once

/// Tables in CSV files: which columns are numbers, categories and the label.

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
  char decimal = '.';                         ///< of numbers: a point, or a comma
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
    bool counts = false;                  ///< whether each is one more than the one before
  };
  std::vector<Feature> features;
  std::vector<std::string> class_names;
};

/// Columns by the options, from the first record of a file.
[[nodiscard]] CsvSchema csv_schema(const std::vector<std::string>& first, const CsvOptions& options,
                                   const std::string& path);
/// The columns of another file of the same table, found by their names.
[[nodiscard]] CsvSchema csv_schema_like(const CsvSchema& before, const std::vector<std::string>& first,
                                        const std::string& path);
/// The column of that name, or of that place from 0. Throws ArgumentError, naming the nearest, where there is
/// none, or more than one.
[[nodiscard]] std::size_t csv_column(const std::vector<std::string>& header, const std::string& name,
                                     const std::string& path);
/// Names of columns, which may also be given by their place from 0.
[[nodiscard]] std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options);

}  // namespace fq::detail
