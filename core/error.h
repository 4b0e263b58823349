#pragma once

/// Errors: everything this library throws derives from `fq::Error`.
///
/// A message names the function, the value, what is allowed and the way out: `[fake_tensor_quant] amax has 3
/// elements, input has 4 channels on axis 0: give one amax per channel, or a scalar`. The library never
/// prints, exits or aborts, and destructors never throw. Where an error leaves an object as it was, its
/// header says so.
///
///     try {
///       StateDict state = load_checkpoint("net.h5");
///     } catch (const FileError& error) {
///       std::cerr << error.path() << ": " << error.what() << '\n';
///     } catch (const Error& error) {  // anything else that this library throws
///       std::cerr << error.what() << '\n';
///     }
///
/// The command exits with 2 for ArgumentError and FileError, with 1 for the others.

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace fq {

/// What all others derive from; `what()` is the message, one line of UTF-8: "?" is in place of line ends that
/// names in files have, and other control characters are written out, as "\x1b".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
};

/// The caller's mistake: a value, shape, dtype, name or option that is not allowed. Names that are nearly
/// right are answered by the nearest valid ones.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, damaged, of a foreign format, of another model or of a newer version.
class FileError : public Error {
 public:
  /// `path` is the file as it was given, `dataset` the place in it, `message` what `what()` says.
  FileError(std::string path, std::string dataset, const std::string& message)
      : Error(message), path_(std::move(path)), dataset_(std::move(dataset)) {}

  /// The file, as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The dataset, key or group at fault; empty when the file as a whole is meant.
  [[nodiscard]] const std::string& dataset() const noexcept { return dataset_; }

 private:
  std::string path_;
  std::string dataset_;
};

/// A value that arithmetic cannot go on with: a NaN in an activation, a diverged loss. What was computed on a
/// GPU shows when a value is read back next.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A library or device that we call failed, or is not there: oneDNN, HDF5, CUDA.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// The operating system refused: memory, disk, threads.
class SystemError : public Error {
 public:
  using Error::Error;
};

}  // namespace fq
