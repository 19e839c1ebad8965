#include "cm/path_record.hpp"

#include <endian.h>

#include <cstring>

namespace softverbs::cm {

namespace {

constexpr std::uint8_t exactly = 2;         // The selector for an exact value.
constexpr std::uint8_t selector_shift = 6;  // One byte holds the selector and the value.
constexpr std::uint8_t reversible_bit = 0x80;

/// The record on the wire, big-endian.
struct wire_record {
  std::uint64_t service;
  ibv_gid destination;
  ibv_gid source;
  std::uint16_t destination_lid;
  std::uint16_t source_lid;
  std::uint32_t flow_and_hops;
  std::uint8_t traffic_class;
  std::uint8_t reversible_and_count;
  std::uint16_t pkey;
  std::uint16_t qos_and_level;
  std::uint8_t mtu;
  std::uint8_t rate;
  std::uint8_t life_time;
  std::uint8_t preference;
  std::uint8_t reserved[6];
};
static_assert(sizeof(wire_record) == sizeof(ib_path_rec_data::path_rec));

constexpr std::uint8_t selected(std::uint8_t value) noexcept {
  return static_cast<std::uint8_t>(exactly << selector_shift | value);
}

}  // namespace

ib_path_rec_data packed(const path& from) noexcept {
  wire_record record{};
  record.destination = from.destination;
  record.source = from.source;
  record.flow_and_hops = htobe32(from.flow_label << 8 | from.hop_limit);
  record.traffic_class = from.traffic_class;
  record.reversible_and_count = reversible_bit;
  record.pkey = default_pkey;
  record.qos_and_level = htobe16(from.service_level);
  record.mtu = selected(from.mtu);
  record.rate = selected(from.rate);
  record.life_time = selected(from.life_time);
  ib_path_rec_data result{};
  result.flags = usable_path;
  std::memcpy(result.path_rec, &record, sizeof record);
  return result;
}

path unpacked(const ib_path_rec_data& from) noexcept {
  wire_record record;
  std::memcpy(&record, from.path_rec, sizeof record);
  path result;
  result.source = record.source;
  result.destination = record.destination;
  const std::uint32_t flow_and_hops = be32toh(record.flow_and_hops);
  result.flow_label = flow_and_hops >> 8 & 0xfffff;
  result.hop_limit = static_cast<std::uint8_t>(flow_and_hops);
  result.traffic_class = record.traffic_class;
  result.service_level = static_cast<std::uint8_t>(be16toh(record.qos_and_level) & 0xf);
  result.mtu = record.mtu & 0x3f;
  result.rate = record.rate & 0x3f;
  result.life_time = record.life_time & 0x1f;
  return result;
}

ib_user_path_rec route_record(const path& from) noexcept {
  ib_user_path_rec result{};
  std::memcpy(result.dgid, from.destination.raw, sizeof result.dgid);
  std::memcpy(result.sgid, from.source.raw, sizeof result.sgid);
  result.flow_label = htobe32(from.flow_label);
  result.reversible = 1;
  result.mtu = from.mtu;
  result.pkey = default_pkey;
  result.hop_limit = from.hop_limit;
  result.traffic_class = from.traffic_class;
  result.sl = from.service_level;
  result.mtu_selector = result.rate_selector = result.packet_life_time_selector = exactly;
  result.rate = from.rate;
  result.packet_life_time = from.life_time;
  return result;
}

ib_uverbs_ah_attr ah_attr_of(const path& to, int sgid_index) noexcept {
  ib_uverbs_ah_attr result{};
  std::memcpy(result.grh.dgid, to.destination.raw, sizeof result.grh.dgid);
  result.grh.flow_label = to.flow_label;
  result.grh.sgid_index = static_cast<std::uint8_t>(sgid_index);
  result.grh.hop_limit = to.hop_limit;
  result.grh.traffic_class = to.traffic_class;
  result.sl = to.service_level;
  result.static_rate = to.rate;
  result.is_global = 1;
  result.port_num = only_port;
  return result;
}

}  // namespace softverbs::cm
