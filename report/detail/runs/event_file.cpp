#include "fakequant/report/detail/runs/event_file.h"

#include <bit>

#include "fakequant/core/io/detail/crc32c.h"

namespace fq::detail {
namespace {

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return little_endian(static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u));
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

// Fields of messages, by number (tensorflow/core/util/event.proto and framework/summary.proto).
std::string tag(int field, int wire_type) {
  return varint(static_cast<std::uint64_t>(field << 3 | wire_type));
}
std::string bytes_field(int field, std::string_view bytes) {
  return tag(field, 2) + varint(bytes.size()) + std::string(bytes);
}
std::string whole_field(int field, std::int64_t value) {
  return tag(field, 0) + varint(static_cast<std::uint64_t>(value));
}

std::string event(double wall_time, std::int64_t step) {
  return tag(1, 1) + little_endian(std::bit_cast<std::uint64_t>(wall_time)) + whole_field(2, step);
}

std::string scalar(const std::string& name, double value) {
  return bytes_field(1, name) + tag(2, 5) +
         little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

}  // namespace

std::string event_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + checksum(length) + std::string(data) + checksum(data);
}

std::string event_file_head(double wall_time) {
  return event_record(event(wall_time, 0) + bytes_field(3, "brain.Event:2"));
}

std::string session_start(double wall_time, std::int64_t step) {
  return event_record(event(wall_time, step) + bytes_field(7, whole_field(1, 1)));
}

std::string scalars_record(double wall_time, std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars) summary += bytes_field(1, scalar(name, value));
  return event_record(event(wall_time, step) + bytes_field(5, summary));
}

}  // namespace fq::detail
