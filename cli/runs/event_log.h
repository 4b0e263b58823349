#pragma once

/// EventLog: the numbers of a run for TensorBoard, in its run directory.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fq::cli {

class EventLog {
 public:
  /// A new file of that folder, "events.out.tfevents.<seconds>.fakequant"; those of before stay beside it.
  explicit EventLog(const std::string& folder);
  ~EventLog();
  EventLog(EventLog&&) noexcept;

  /// What a file of before told of later steps does not count.
  void begin(std::int64_t step);
  /// The numbers of a line of the record; of epochs as "epoch/loss", of quantizers as
  /// "amax/conv1.input_quantizer".
  void add(const nlohmann::ordered_json& line);
  /// What was added is safe from a loss of power.
  void sync();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::cli
