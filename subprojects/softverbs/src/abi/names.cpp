#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

// Texts and rates of enumerators, alike for all devices. The wording is that of libibverbs, because
// scripts parse it.

namespace {

template <std::size_t Count>
const char* word_of(const std::array<const char*, Count>& words, int value,
                    const char* unknown) noexcept {
  return value >= 0 && static_cast<std::size_t>(value) < Count &&
                 words[static_cast<std::size_t>(value)] != nullptr
             ? words[static_cast<std::size_t>(value)]
             : unknown;
}

constexpr int none = -1;

struct rate {
  ibv_rate code;
  int multiple;  ///< multiple of 2.5 Gbit/s; `none` when it is no whole number
  int mbps;
};

constexpr rate rates[] = {{IBV_RATE_2_5_GBPS, 1, 2500},      {IBV_RATE_5_GBPS, 2, 5000},
                          {IBV_RATE_10_GBPS, 4, 10000},      {IBV_RATE_20_GBPS, 8, 20000},
                          {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
                          {IBV_RATE_60_GBPS, 24, 60000},     {IBV_RATE_80_GBPS, 32, 80000},
                          {IBV_RATE_120_GBPS, 48, 120000},   {IBV_RATE_14_GBPS, none, 14062},
                          {IBV_RATE_56_GBPS, none, 56250},   {IBV_RATE_112_GBPS, none, 112500},
                          {IBV_RATE_168_GBPS, none, 168750}, {IBV_RATE_25_GBPS, none, 25781},
                          {IBV_RATE_100_GBPS, none, 103125}, {IBV_RATE_200_GBPS, none, 206250},
                          {IBV_RATE_300_GBPS, none, 309375}, {IBV_RATE_28_GBPS, 11, 28125},
                          {IBV_RATE_50_GBPS, 20, 53125},     {IBV_RATE_400_GBPS, 160, 425000},
                          {IBV_RATE_600_GBPS, 240, 637500},  {IBV_RATE_800_GBPS, 320, 850000},
                          {IBV_RATE_1200_GBPS, 480, 1275000}};

template <class Value>
const rate* find_rate(Value rate::* member, Value value) noexcept {
  const auto* const found =
      std::find_if(std::begin(rates), std::end(rates),
                   [&](const rate& candidate) { return candidate.*member == value; });
  return found != std::end(rates) ? found : nullptr;
}

constexpr auto node_types = std::to_array<const char*>(
    {nullptr, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC",
     "usNIC", "usNIC UDP", "unspecified"});

constexpr auto port_states = std::to_array<const char*>(
    {"no state change (NOP)", "down", "init", "armed", "active", "active defer"});

constexpr auto event_types = std::to_array<const char*>({"CQ error",
                                                         "local work queue catastrophic error",
                                                         "invalid request local work queue error",
                                                         "local access violation work queue error",
                                                         "communication established",
                                                         "send queue drained",
                                                         "path migrated",
                                                         "path migration request error",
                                                         "local catastrophic error",
                                                         "port active",
                                                         "port error",
                                                         "LID change",
                                                         "P_Key change",
                                                         "SM change",
                                                         "SRQ catastrophic error",
                                                         "SRQ limit reached",
                                                         "last WQE reached",
                                                         "client reregistration",
                                                         "GID table change",
                                                         "WQ fatal"});

constexpr auto statuses = std::to_array<const char*>({"success",
                                                      "local length error",
                                                      "local QP operation error",
                                                      "local EE context operation error",
                                                      "local protection error",
                                                      "Work Request Flushed Error",
                                                      "memory management operation error",
                                                      "bad response error",
                                                      "local access error",
                                                      "remote invalid request error",
                                                      "remote access error",
                                                      "remote operation error",
                                                      "transport retry counter exceeded",
                                                      "RNR retry counter exceeded",
                                                      "local RDD violation error",
                                                      "remote invalid RD request",
                                                      "aborted error",
                                                      "invalid EE context number",
                                                      "invalid EE context state",
                                                      "fatal error",
                                                      "response timeout error",
                                                      "general error",
                                                      "TM error",
                                                      "TM software rendezvous"});

}  // namespace

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) { return word_of(node_types, type, "unknown"); }
const char* ibv_port_state_str(ibv_port_state state) {
  return word_of(port_states, state, "unknown");
}
const char* ibv_event_type_str(ibv_event_type type) {
  return word_of(event_types, type, "unknown");
}
const char* ibv_wc_status_str(ibv_wc_status status) { return word_of(statuses, status, "unknown"); }

int ibv_rate_to_mult(ibv_rate code) {
  const rate* const found = find_rate(&rate::code, code);
  return found != nullptr ? found->multiple : none;
}
ibv_rate mult_to_ibv_rate(int multiple) {
  const rate* const found = find_rate(&rate::multiple, multiple);
  return found != nullptr && multiple != none ? found->code : IBV_RATE_MAX;
}
int ibv_rate_to_mbps(ibv_rate code) {
  const rate* const found = find_rate(&rate::code, code);
  return found != nullptr ? found->mbps : none;
}
ibv_rate mbps_to_ibv_rate(int mbps) {
  const rate* const found = find_rate(&rate::mbps, mbps);
  return found != nullptr ? found->code : IBV_RATE_MAX;
}

}  // extern "C"
