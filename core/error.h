#pragma once

/// Errors: everything this library throws derives from `fq::Error`.
///
/// A message names the function, the value, the allowed values and a remedy: `[fake_tensor_quant] amax has 3
/// elements, input has 4 channels on axis 0: give one amax per channel, or a scalar`. The library never
/// prints, exits or aborts, and destructors never throw. If a function leaves its object unchanged on error,
/// its header says so.
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

/// Base class of all errors. `what()` is the message, one line of UTF-8. Line ends inside file names become
/// "?"; other control characters are escaped, for example "\x1b".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
};

/// A value, shape, dtype, name or option that is not allowed. For a misspelled name the message lists the
/// nearest valid names.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, damaged, of an unknown format, of another model or of a newer version.
class FileError : public Error {
 public:
  /// `path` is the file as given, `dataset` the position in the file, `message` the text of `what()`.
  FileError(std::string path, std::string dataset, const std::string& message)
      : Error(message), path_(std::move(path)), dataset_(std::move(dataset)) {}

  /// The file path, as given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The dataset, key or group with the error; empty if the error concerns the whole file.
  [[nodiscard]] const std::string& dataset() const noexcept { return dataset_; }

 private:
  std::string path_;
  std::string dataset_;
};

/// A value that prevents further computation: a NaN in an activation, a diverged loss. Errors of work on a
/// GPU are reported at the next read of a value on the host.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A library or device failed or is missing: oneDNN, HDF5, CUDA.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// The operating system rejected a request for memory, disk or threads.
class SystemError : public Error {
 public:
  using Error::Error;
};

}  // namespace fq
