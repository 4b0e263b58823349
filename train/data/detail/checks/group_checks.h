#pragma once

/// The checks of one group, and what those of several are made of.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/detail/checks/data_checks.h"
#include "fakequant/train/data/detail/data_file.h"

namespace fq::detail {

/// What was found of a group, for comparing it with others.
struct GroupSummary {
  std::string name;
  Shape sample_shape;
  DType dtype = DType::u8;
  std::int64_t rows = 0;
  bool tokens = false;
  Normalisation how;
  Tensor labels;                    ///< i64 [rows]; undefined without, and for real and several labels
  std::int64_t stated_classes = 0;  ///< 0: not stated
  std::vector<std::string> class_names;
};

/// "3 (cat)".
[[nodiscard]] std::string class_text(std::int64_t label, const std::vector<std::string>& names);

/// Looks at the group `name`, the `index`th, adding what it finds. Nothing where its samples cannot be read.
[[nodiscard]] std::optional<GroupSummary> check_group(const std::string& path, const std::string& name,
                                                      std::uint32_t index, std::vector<Finding>& findings,
                                                      Duplicates& duplicates, const CheckProgress& progress);
/// Shapes and values that differ between groups, classes without samples, and duplicates.
void check_together(const std::vector<GroupSummary>& groups, const Duplicates& duplicates,
                    std::vector<Finding>& findings);

}  // namespace fq::detail
