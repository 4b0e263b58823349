#pragma once

/// The way of the commands `dataset from-..` from samples to a file.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/conversion_flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/train/data/writer/data_set_file.h"

namespace fq::cli {

/// Samples that go to a file, and their labels.
struct Converting {
  std::unique_ptr<fq::detail::SampleSource> samples;
  fq::detail::Labels labels;
  std::vector<std::uint8_t> groups = {};  ///< empty: by --test and --val
};

/// A count of samples as a bar, and the end where a signal asks for it: throws Interrupted.
class ConversionBar {
 public:
  ConversionBar(std::string label, std::int64_t total, Output& output)
      : label_(std::move(label)), total_(total), output_(output) {}

  void operator()(std::int64_t done) const;

 private:
  std::string label_;
  std::int64_t total_;
  Output& output_;
  Stopwatch watch_;
};

/// Throws ArgumentError unless all have samples of one type, and labels of one task or none.
void check_same(const std::vector<Converting>& parts, const Flags& flags);
/// Splits what has no groups by --val, --test and --seed, of which --test is 0 where others are there, and
/// writes --output. Prints the groups and `notes`. Returns the result for machines.
[[nodiscard]] nlohmann::ordered_json write_converted(const Flags& flags, Output& output,
                                                     std::vector<Converting>& parts,
                                                     fq::detail::DataSetOptions options,
                                                     std::vector<std::string> notes);
}  // namespace fq::cli
