#include "fakequant/train/data/reader/csv_source.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/csv_fields.h"
#include "fakequant/train/data/reader/csv_survey.h"

namespace fq::detail {

CsvSource::CsvSource(const std::string& path, CsvOptions options, const CsvSchema* schema)
    : path_(path), options_(std::move(options)) {
  CsvReader reader(path_, options_.delimiter);
  std::vector<std::string> first;
  if (!reader.next(first)) throw FileError(path_, "", fmt::format("[dataset] {} has no records", path_));
  schema_ = schema != nullptr ? csv_schema_like(*schema, first, path_) : csv_schema(first, options_, path_);
  reader_ = std::make_unique<CsvReader>(path_, options_.delimiter);
  if (schema_.has_header) (void)reader_->next(fields_);
  CsvSurvey survey(schema_, options_, schema != nullptr);
  for (; next_kept(*reader_); ++rows_) survey.add(fields_, *reader_);
  if (rows_ == 0)
    throw FileError(path_, "", fmt::format("[dataset] {} has no records that are complete", path_));
  labels_ = survey.finish(path_);
  std::int64_t width = 0;
  for (const auto& feature : schema_.features)
    width += std::max<std::int64_t>(1, std::int64_t(feature.categories.size()));
  type_ = {.shape = {width}, .dtype = DType::f32};
  reader_.reset();
}

void CsvSource::check_field(const CsvSchema::Feature& feature, const CsvReader& from) const {
  const std::string& field = fields_[feature.column];
  const std::string name = printable(schema_.header[feature.column]);
  if (is_missing(field)) {
    if (options_.missing == Missing::error || (options_.missing == Missing::mean && feature.text))
      from.fail(fmt::format("has no value in the column '{}': --missing skip leaves such records out{}", name,
                            feature.text ? "" : ", --missing mean puts the column's mean there"));
  } else if (!feature.text && !field_number(field)) {
    from.fail(
        fmt::format("has '{}' in the column '{}', which is no number: {}--drop {} leaves the column out, "
                    "--one-hot {} makes a number of each text",
                    printable(field), name, field_hint(field), name, name));
  }
}

/// Whether the record that was read is kept.
bool CsvSource::is_complete(const CsvReader& from) const {
  if (fields_.size() != schema_.header.size())
    from.fail(fmt::format("has {} fields, the first has {}: fields with a '{}' in them stand in quotes",
                          fields_.size(), schema_.header.size(), from.delimiter()));
  bool gap = false;
  for (const auto& feature : schema_.features) {
    check_field(feature, from);
    gap |= is_missing(fields_[feature.column]);
  }
  if (schema_.label >= 0 && is_missing(fields_[std::size_t(schema_.label)])) {
    if (options_.missing == Missing::error) from.fail("has no label: --missing skip leaves such records out");
    return false;
  }
  return !gap || options_.missing != Missing::skip;
}

/// Numbers get a decimal point.
void CsvSource::take_decimals() {
  if (options_.decimal == '.') return;
  const auto change = [&](std::size_t column) {
    if (column < fields_.size()) std::ranges::replace(fields_[column], options_.decimal, '.');
  };
  for (const auto& feature : schema_.features)
    if (!feature.text) change(feature.column);
  if (schema_.label >= 0 && options_.task == Task::real) change(std::size_t(schema_.label));
}

bool CsvSource::next_kept(CsvReader& from) {
  while (from.next(fields_)) {
    take_decimals();
    if (is_complete(from)) return true;
    if (type_.shape.empty()) ++skipped_;  // in the first of two passes
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
