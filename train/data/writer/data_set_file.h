#pragma once

/// Data set files (docs/formats.md) of samples of other formats.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/sample_source.h"
#include "fakequant/train/data/writer/like.h"
#include "fakequant/train/data/writer/split.h"

namespace fq::detail {

/// Samples with their labels, and the group that each goes to.
struct DataSetPart {
  SampleSource* samples = nullptr;
  Labels labels;
  std::vector<std::uint8_t> groups;
};

struct DataSetOptions {
  std::optional<double> scale = {};  ///< in place of that of the samples
  bool normalise = false;            ///< mean and deviation of each channel of the training samples are
                                     ///< written, by which every reader normalises
  std::optional<StoredNormalisation> how = {};  ///< in place of both: that of another data set
  std::vector<std::string> columns = {};        ///< what the numbers of a flat row are
  std::vector<std::string> vocabulary = {};     ///< what token ids stand for, from 0 on
  std::string tokens = {};                      ///< how text became tokens
  std::string tokenizer = {};                   ///< of pieces: the tokenizer.json
};

/// What was written.
struct DataSetSummary {
  std::array<std::int64_t, kGroups.size()> rows{};
  std::int64_t left_out = 0;
  std::int64_t classes = 0;
  double scale = 0;                  ///< 0: none was written
  double smallest = 0, largest = 0;  ///< as stored
  std::vector<double> mean = {}, deviation = {};
};

/// The attribute of the file by which files of this writer are known: `writer` = "fakequant dataset".
inline constexpr const char* kWriterAttribute = "writer";
inline constexpr const char* kWriterName = "fakequant dataset";

/// Called with the samples that are done; what it throws ends the writing, and nothing is written.
using ConversionProgress = std::function<void(std::int64_t done)>;

/// Writes one file of them, in their order, a row at a time. All parts have samples of one type, and labels
/// of one task and the same names. Groups without a sample are not made. Throws FileError for a NaN or
/// infinity, naming the sample, for labels that the names do not cover, where no sample is left, and where
/// none is for training and values are to be normalised by those; as Hdf5Writer for what cannot be written.
[[nodiscard]] DataSetSummary write_data_set(const std::string& path, const std::vector<DataSetPart>& parts,
                                            const DataSetOptions& options,
                                            const ConversionProgress& progress = {});

}  // namespace fq::detail
