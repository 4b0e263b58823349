#include "fakequant/train/data/reader/csv_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/detail/class_names.h"
#include "fakequant/train/data/reader/csv_fields.h"
#include "fakequant/train/data/reader/label_values.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostCategories = 1000;
using Names = std::vector<std::string>;

bool is_header(const Names& first, const std::string& choice) {
  if (choice != "auto") return choice == "yes";
  return std::ranges::none_of(first, [](const auto& field) { return field_number(field).has_value(); });
}

/// Columns by the options, from the first record.
CsvSchema schema_of(const Names& first, const CsvOptions& options, const std::string& path) {
  CsvSchema schema;
  schema.has_header = is_header(first, options.header);
  for (std::size_t i = 0; i < first.size(); ++i)
    schema.header.push_back(schema.has_header ? first[i] : std::to_string(i));
  if (!options.label.empty()) schema.label = std::int64_t(csv_column(schema.header, options.label, path));
  std::set<std::size_t> wanted, out, text;
  for (const auto& name : options.columns) wanted.insert(csv_column(schema.header, name, path));
  for (const auto& name : options.one_hot) text.insert(csv_column(schema.header, name, path));
  for (const auto& name : options.drop) out.insert(csv_column(schema.header, name, path));
  for (std::size_t i = 0; i < first.size(); ++i)
    if (std::int64_t(i) != schema.label && !out.contains(i) && (wanted.empty() || wanted.contains(i)))
      schema.features.push_back({i, text.contains(i), {}});
  for (auto& feature : schema.features)
    for (const auto& known : options.known)
      if (const std::string begin = schema.header[feature.column] + "=";
          feature.text && known.starts_with(begin))
        feature.categories.push_back(known.substr(begin.size()));
  FQ_CHECK(!schema.features.empty(), "dataset", "{} has no column left beside the label: it has {}", path,
           fmt::join(schema.header, ", "));
  return schema;
}

/// The columns of another file of the same table.
CsvSchema same_schema(const CsvSchema& before, const Names& first, const std::string& path) {
  CsvSchema schema = before;
  const auto moved = [&](std::size_t column) {
    return before.has_header ? csv_column(first, before.header[column], path) : column;
  };
  for (auto& feature : schema.features) feature.column = moved(feature.column);
  if (schema.label >= 0) schema.label = std::int64_t(moved(std::size_t(schema.label)));
  schema.header = before.has_header ? first : before.header;
  if (schema.header.size() != first.size())
    throw FileError(path, "",
                    fmt::format("[dataset] {} has {} columns, the table before it {}", path, first.size(),
                                schema.header.size()));
  return schema;
}

}  // namespace

std::size_t csv_column(const std::vector<std::string>& header, const std::string& name,
                       const std::string& path) {
  const auto found = std::ranges::find(header, name);
  FQ_CHECK(found == header.end() || std::ranges::count(header, name) == 1, "dataset",
           "{} has more than one column '{}': name it by its place, from 0", path, name);
  if (found != header.end()) return std::size_t(found - header.begin());
  const auto place = field_number(name);
  const bool is_place =
      place && *place >= 0 && *place < double(header.size()) && *place == std::floor(*place);
  FQ_CHECK(is_place, "dataset", "{} has no column '{}'{}", path, printable(name), did_you_mean(name, header));
  return std::size_t(*place);
}

std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options) {
  CsvReader reader(path, options.delimiter);
  Names first;
  if (!reader.next(first)) throw FileError(path, "", fmt::format("[dataset] {} has no records", path));
  CsvOptions all = options;
  all.label.clear();
  return schema_of(first, all, path).header;
}

/// The first look through a file: labels, categories and means.
class CsvSource::Survey {
 public:
  Survey(CsvSource& source, bool known)
      : source_(source),
        known_(known),
        categories_(source.schema_.features.size()),
        sums_(source.schema_.features.size()),
        counts_(sums_.size()) {}

  void add(const CsvReader& reader) {
    const auto& fields = source_.fields_;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto& feature = source_.schema_.features[i];
      const std::string& field = fields[feature.column];
      if (feature.text) {
        take_category(i, field, reader);
      } else if (const auto number = field_number(field)) {
        sums_[i] += *number;
        ++counts_[i];
      }
    }
    if (source_.schema_.label >= 0) take_label(fields[std::size_t(source_.schema_.label)], reader);
  }

  void finish() {
    auto& features = source_.schema_.features;
    for (std::size_t i = 0; i < features.size() && !known_; ++i) {
      if (features[i].categories.empty())
        features[i].categories.assign(categories_[i].begin(), categories_[i].end());
      if (counts_[i] > 0) features[i].mean = sums_[i] / double(counts_[i]);
      if (counts_[i] == 0 && !features[i].text)
        throw FileError(source_.path_, "",
                        fmt::format("[dataset] {} has no number in the column '{}': --drop it", source_.path_,
                                    source_.schema_.header[features[i].column]));
    }
    if (source_.schema_.label < 0) return;
    source_.labels_.task = source_.options_.task;
    source_.options_.task == Task::real ? finish_numbers() : finish_classes();
  }

 private:
  void take_category(std::size_t i, const std::string& field, const CsvReader& reader) {
    const auto& feature = source_.schema_.features[i];
    const std::string& name = source_.schema_.header[feature.column];
    if (!feature.categories.empty() && !std::ranges::binary_search(feature.categories, field))
      reader.fail(fmt::format("has '{}' in the column '{}', which the training data has not",
                              printable(field), name));
    if (feature.categories.empty() && categories_[i].insert(field).second &&
        categories_[i].size() > kMostCategories)
      reader.fail(fmt::format("has the {}th text in the column '{}': at most {}", kMostCategories + 1, name,
                              kMostCategories));
  }

  void take_label(const std::string& field, const CsvReader& reader) {
    if (source_.options_.task == Task::classes) {
      texts_.push_back(field);
      lines_.push_back(reader.line());
      return;
    }
    const auto number = field_number(field);
    if (!number)
      reader.fail(
          fmt::format("has the label '{}', which is no number: --task classes takes text", printable(field)));
    numbers_.push_back(float(*number));
  }

  void finish_numbers() { source_.labels_.values = Tensor::from(numbers_, {source_.rows_}); }

  void finish_classes() {
    std::optional<std::size_t> unknown;
    const Names& order = known_ ? source_.schema_.class_names : source_.options_.class_names;
    NamedLabels named = named_labels(texts_, order, unknown);
    if (unknown)
      throw FileError(
          source_.path_, "",
          fmt::format("[dataset] {}: line {} has the label '{}'{}", source_.path_, lines_[*unknown],
                      printable(texts_[*unknown]), did_you_mean(texts_[*unknown], order)));
    check_are_classes();
    source_.labels_.values = Tensor::from(named.values, {source_.rows_});
    source_.labels_.class_names = named.names;
    if (!known_) source_.schema_.class_names = all_names(named);
  }

  /// Many numbers that are not whole are no classes.
  void check_are_classes() const {
    const std::set<std::string> distinct(texts_.begin(), texts_.end());
    const auto whole = [](const std::string& text) {
      const auto number = field_number(text);
      return !number || *number == std::floor(*number);
    };
    if (distinct.size() > 20 && !std::ranges::all_of(distinct, whole))
      throw FileError(
          source_.path_, "",
          fmt::format("[dataset] {} has {} different numbers in the column '{}': they look like no "
                      "classes; give --task real",
                      source_.path_, distinct.size(),
                      source_.schema_.header[std::size_t(source_.schema_.label)]));
  }

  static Names all_names(const NamedLabels& named) {
    if (!named.names.empty() || named.values.empty()) return named.names;
    Names names;
    for (std::int64_t i = 0; i <= std::ranges::max(named.values); ++i) names.push_back(std::to_string(i));
    return names;
  }

  CsvSource& source_;
  bool known_;
  std::vector<std::set<std::string>> categories_;
  std::vector<double> sums_;
  std::vector<std::int64_t> counts_, lines_;
  Names texts_;
  std::vector<float> numbers_;
};

CsvSource::CsvSource(const std::string& path, CsvOptions options, const CsvSchema* schema)
    : path_(path), options_(std::move(options)) {
  CsvReader reader(path_, options_.delimiter);
  Names first;
  if (!reader.next(first)) throw FileError(path_, "", fmt::format("[dataset] {} has no records", path_));
  schema_ = schema != nullptr ? same_schema(*schema, first, path_) : schema_of(first, options_, path_);
  reader_ = std::make_unique<CsvReader>(path_, options_.delimiter);
  if (schema_.has_header) (void)reader_->next(fields_);
  Survey survey(*this, schema != nullptr);
  for (; next_kept(*reader_); ++rows_) survey.add(*reader_);
  if (rows_ == 0)
    throw FileError(path_, "", fmt::format("[dataset] {} has no records that are complete", path_));
  survey.finish();
  std::int64_t width = 0;
  for (const auto& feature : schema_.features)
    width += std::max<std::int64_t>(1, std::int64_t(feature.categories.size()));
  type_ = {.shape = {width}, .dtype = DType::f32};
  reader_.reset();
}

/// Reads records until one is not left out; `skipped_` counts in the first pass only.
bool CsvSource::next_kept(CsvReader& from) {
  while (from.next(fields_)) {
    if (fields_.size() != schema_.header.size())
      from.fail(fmt::format("has {} fields, the first has {}: fields with a '{}' in them stand in quotes",
                            fields_.size(), schema_.header.size(), from.delimiter()));
    bool complete = true;
    for (const auto& feature : schema_.features) {
      const std::string& field = fields_[feature.column];
      const std::string& name = schema_.header[feature.column];
      if (is_missing(field)) {
        if (options_.missing == Missing::error || (options_.missing == Missing::mean && feature.text))
          from.fail(fmt::format("has no value in the column '{}': --missing skip leaves such records out{}",
                                printable(name),
                                feature.text ? "" : ", --missing mean puts the column's mean there"));
        complete &= options_.missing != Missing::skip;
      } else if (!feature.text && !field_number(field)) {
        from.fail(
            fmt::format("has '{}' in the column '{}', which is no number: --drop {} leaves the column out, "
                        "--one-hot {} makes a number of each text",
                        printable(field), printable(name), printable(name), printable(name)));
      }
    }
    if (schema_.label >= 0 && is_missing(fields_[std::size_t(schema_.label)])) {
      if (options_.missing == Missing::error)
        from.fail("has no label: --missing skip leaves such records out");
      complete = false;
    }
    if (complete) return true;
    if (type_.shape.empty()) ++skipped_;
  }
  return false;
}

void CsvSource::put(std::byte* to) const {
  const auto add = [&](float value) {
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  };
  for (const auto& feature : schema_.features) {
    const std::string& field = fields_[feature.column];
    for (const auto& category : feature.categories) add(field == category ? 1.0f : 0.0f);
    if (feature.categories.empty()) add(float(field_number(field).value_or(feature.mean)));
  }
}

bool CsvSource::read(std::int64_t row, std::byte* to) {
  if (!reader_) {
    reader_ = std::make_unique<CsvReader>(path_, options_.delimiter);
    if (schema_.has_header) (void)reader_->next(fields_);
  }
  for (; next_ <= row; ++next_)
    if (!next_kept(*reader_))
      throw FileError(path_, "", fmt::format("[dataset] {} became shorter while it was read", path_));
  put(to);
  return true;
}

std::string CsvSource::place_of(std::int64_t) const {
  return fmt::format("{}: line {}", path_, reader_ ? reader_->line() : 0);
}

}  // namespace fq::detail
