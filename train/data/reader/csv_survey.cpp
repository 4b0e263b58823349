#include "fakequant/train/data/reader/csv_survey.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/csv_fields.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostTexts = 1000;
constexpr std::size_t kManyNumbers = 20;
constexpr std::int64_t kFewCounts = 10;  // numbers in a row that are no chance

/// Of labels that are the numbers 0 .. K - 1, too.
std::vector<std::string> all_names(const Labels& labels) {
  if (!labels.class_names.empty()) return labels.class_names;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i <= std::ranges::max(labels.values.to_vector<std::int64_t>()); ++i)
    names.push_back(std::to_string(i));
  return names;
}

}  // namespace

CsvSurvey::CsvSurvey(CsvSchema& schema, const CsvOptions& options, bool known)
    : schema_(schema),
      options_(options),
      known_(known),
      texts_(schema.features.size()),
      sums_(schema.features.size()),
      last_(schema.features.size()),
      counts_on_(schema.features.size(), true),
      counts_(schema.features.size()),
      labels_(known ? schema.class_names : options.class_names) {}

void CsvSurvey::add(const std::vector<std::string>& fields, const CsvReader& reader) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto& feature = schema_.features[i];
    const std::string& field = fields[feature.column];
    if (feature.text) {
      take_text(i, field, reader);
    } else if (const auto number = field_number(field)) {
      sums_[i] += *number;
      if (counts_[i] > 0 && *number != last_[i] + 1) counts_on_[i] = false;
      last_[i] = *number;
      ++counts_[i];
    }
  }
  if (schema_.label >= 0) take_label(fields[std::size_t(schema_.label)], reader);
}

void CsvSurvey::take_text(std::size_t i, const std::string& field, const CsvReader& reader) {
  const auto& known = schema_.features[i].categories;
  const std::string& name = schema_.header[schema_.features[i].column];
  if (!known.empty()) {
    if (!std::ranges::binary_search(known, field))
      reader.fail(fmt::format("has '{}' in the column '{}', which the training data has not",
                              printable(field), name));
  } else if (texts_[i].insert(field).second && texts_[i].size() > kMostTexts) {
    reader.fail(
        fmt::format("has the {}th text in the column '{}': at most {}", kMostTexts + 1, name, kMostTexts));
  }
}

void CsvSurvey::take_label(const std::string& field, const CsvReader& reader) {
  if (options_.task == Task::classes) {
    if (!labels_.add(field))
      reader.fail(
          fmt::format("has the label '{}'{}", printable(field), did_you_mean(field, labels_.names())));
    return;
  }
  const auto number = field_number(field);
  if (!number || !std::isfinite(float(*number)))
    reader.fail(fmt::format("has the label '{}', which is no number that f32 has: --task classes takes text",
                            printable(field)));
  numbers_.push_back(float(*number));
}

Labels CsvSurvey::finish(const std::string& path) {
  if (!known_) finish_columns(path);
  if (schema_.label < 0) return {};
  if (options_.task == Task::classes) return class_labels(path);
  return {Task::real, Tensor::from(numbers_, {std::ssize(numbers_)}), {}};
}

void CsvSurvey::finish_columns(const std::string& path) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    auto& feature = schema_.features[i];
    if (feature.categories.empty()) feature.categories.assign(texts_[i].begin(), texts_[i].end());
    if (counts_[i] > 0) feature.mean = sums_[i] / double(counts_[i]);
    feature.counts = counts_on_[i] && counts_[i] >= kFewCounts;
    if (counts_[i] == 0 && !feature.text)
      throw FileError(path, "",
                      fmt::format("[dataset] {} has no number in the column '{}': --drop it", path,
                                  schema_.header[feature.column]));
  }
}

Labels CsvSurvey::class_labels(const std::string& path) {
  check_are_classes(path);
  Labels labels = labels_.take();
  if (!known_) schema_.class_names = all_names(labels);
  return labels;
}

/// Many numbers that are not whole are no classes.
void CsvSurvey::check_are_classes(const std::string& path) const {
  const auto distinct = labels_.distinct();
  const auto whole = [](const std::string& text) {
    const auto number = field_number(text);
    return !number || *number == std::floor(*number);
  };
  if (distinct.size() > kManyNumbers && !std::ranges::all_of(distinct, whole))
    throw FileError(path, "",
                    fmt::format("[dataset] {} has {} different numbers in the column '{}': they look like no "
                                "classes; give --task real",
                                path, distinct.size(), schema_.header[std::size_t(schema_.label)]));
}

}  // namespace fq::detail
