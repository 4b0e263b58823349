#pragma once

/// Labels, made of what files have in their place.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/array_file.h"
#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// "classes", "several", "real", "dense", "none".
[[nodiscard]] const std::vector<std::string>& task_names();
[[nodiscard]] Task task_of(const std::string& name);

/// An array as labels of that task, one a sample of `samples`. Text becomes classes by its order, or by that
/// of `names` where they are given. Throws FileError, naming the row, for another number of them, floats and
/// negative numbers as classes, one-hot rows, text that `names` has not.
[[nodiscard]] Labels labels_of(ArrayFile array, Task task, std::int64_t samples,
                               const std::vector<std::string>& names);

}  // namespace fq::detail
