#pragma once

/// The readers of files from outside, one by one, as fuzz programs call them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fq::fuzz {

/// A reader of one kind of file.
struct Reader {
  const char* name;  ///< also the folder of its corpus, tests/fuzz/corpus/<name>
  const char* file;  ///< name of an input: some readers look at the extension
  /// Reads and uses the file as a command does. Throws FileError or ArgumentError for rejected
  /// files; any other error is a finding.
  void (*read)(const std::string& path);
  /// Makes the checksums of changed bytes fit, so that the reader looks behind them; null for none.
  void (*seal)(std::string& bytes) = nullptr;
  /// Changes of its own, where changed bytes seldom make sense (changes.h).
  std::string (*change)(const std::string& bytes, std::uint64_t seed) = nullptr;
  /// Whether it hands files to libhdf5, which fails under changed ones: they are tried when it is named
  /// alone.
  bool by_hdf5 = false;
};

/// All of them, in the order of their names.
[[nodiscard]] std::span<const Reader> readers();
/// Throws std::runtime_error naming the readers there are.
[[nodiscard]] const Reader& reader(const std::string& name);

/// Its corpus in the order of names, without files that it must reject.
[[nodiscard]] std::vector<std::string> seeds(const Reader& reader);

/// Writes `bytes` to the reader's file in `folder` and reads it. False where it was refused. Throws
/// std::logic_error for everything else that came out of it.
[[nodiscard]] bool accepts(const Reader& reader, std::string bytes, const std::string& folder);

/// One line each.
void read_calibration(const std::string& path);
void read_checkpoint(const std::string& path);
void read_config(const std::string& path);
void read_dataset(const std::string& path);
void read_gguf(const std::string& path);
void read_model(const std::string& path);
void read_npy(const std::string& path);
void read_onnx(const std::string& path);
void read_plan(const std::string& path);
void read_recipe(const std::string& path);
void read_run(const std::string& path);
void read_safetensors(const std::string& path);
void read_scales(const std::string& path);
void read_tensorrt(const std::string& path);
void read_tokenizer(const std::string& path);

/// Updates lengths and checksums of a state file: header, body, listing and listed parts.
void seal_state(std::string& bytes);

}  // namespace fq::fuzz
