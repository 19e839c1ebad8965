#include "multicast/membership.hpp"
#include "node/fork_mutex.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "wire/no_cancellation.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>

namespace softverbs {

namespace {

constexpr int qps_max = int{index_max} - 1;  // Numbers 0 and 1 are never given out.
constexpr int queue_depth_max = 16384;
constexpr int cqes_max = 1 << 20;
constexpr int keys_each = key_slots / 2;  // Regions and windows share the key table.
constexpr int objects_max = 1 << 16;
constexpr std::uint64_t region_bytes_max = std::uint64_t{1} << 47;
constexpr std::uint64_t page_sizes = ~std::uint64_t{4095};
constexpr std::uint32_t vendor = 0xffffff;       // No registered vendor.
constexpr std::uint8_t ack_delay_exponent = 15;  // 4.096 us << 15: the engine thread gets the CPU.

constexpr std::uint32_t rate_limit_max_kbps = 1'000'000'000;  // More than memory can move.

std::uint64_t hash(std::string_view text) noexcept {  // FNV-1a
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

/// A stable EUI-64 of this host, which is a network namespace of a machine.
std::uint64_t host_guid() {
  std::string name;
  std::getline(std::ifstream{"/etc/machine-id"}, name);
  if (name.empty()) {
    char host[256]{};
    ::gethostname(host, sizeof host - 1);
    name = host;
  }
  struct stat network{};
  if (::stat("/proc/self/ns/net", &network) == 0) name += std::to_string(network.st_ino);
  constexpr std::uint64_t local = std::uint64_t{2} << 56, group = std::uint64_t{1} << 56;
  return (hash(name) | local) & ~group;
}

device_limits measure() {
  device_limits is{};
  std::snprintf(is.fw_ver, sizeof is.fw_ver, "%s", SOFTVERBS_VERSION);
  is.node_guid = is.sys_image_guid = htobe64(host_guid());
  is.max_mr_size = region_bytes_max;
  is.page_size_cap = page_sizes;
  is.vendor_id = vendor;
  is.max_qp = qps_max;
  is.max_qp_wr = is.max_srq_wr = queue_depth_max;
  is.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                        IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW |
                        IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
                        IBV_DEVICE_MEM_MGT_EXTENSIONS;
  is.max_sge = is.max_sge_rd = is.max_srq_sge = int{request_sges_max};
  is.max_cq = is.max_pd = is.max_ah = is.max_srq = objects_max;
  is.max_cqe = cqes_max;
  is.max_mr = is.max_mw = keys_each;
  is.max_qp_rd_atom = is.max_qp_init_rd_atom = int{rd_atomic_max};
  is.max_res_rd_atom = int{rd_atomic_max} * qps_max;
  is.max_mcast_grp = int{attached_groups_max};
  is.max_mcast_qp_attach = int{attached_qps_max};
  is.max_total_mcast_qp_attach = int{attached_groups_max * attached_qps_max};
  // Atomic with respect to the CPU, too, but programs test for exactly this value.
  is.atomic_cap = IBV_ATOMIC_HCA;
  is.max_pkeys = 1;
  is.local_ca_ack_delay = ack_delay_exponent;
  is.phys_port_cnt = 1;
  is.message_bytes = message_bytes_max;
  is.inline_bytes = inline_bytes_max;
  is.resize_cq = is.writes_atomically = true;
  is.pacing = {.qp_rate_limit_min = 1,
               .qp_rate_limit_max = rate_limit_max_kbps,
               .supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD};
  return is;
}

fork_mutex measuring;
constinit device_limits measured{};  ///< under `measuring`; written once
constinit std::atomic<bool> is_measured{false};

constinit std::atomic<const device_limits*> pretended_now{nullptr};

}  // namespace

/// The limits are no function-local static: a fork while another thread initializes one would leave
/// the child waiting.
const device_limits& true_limits() noexcept {
  if (is_measured.load(std::memory_order_acquire)) return measured;
  const no_cancellation wholly;
  const std::lock_guard lock{measuring};
  if (!is_measured.load(std::memory_order_relaxed)) {
    measured = measure();
    is_measured.store(true, std::memory_order_release);
  }
  return measured;
}

const device_limits& limits() noexcept {
  // Acquire: sees the object that pretend() wrote before it published the pointer.
  const device_limits* now = pretended_now.load(std::memory_order_acquire);
  return now != nullptr ? *now : true_limits();
}

const device_limits* exchange_limits(const device_limits* pretended) noexcept {
  return pretended_now.exchange(pretended);
}

void pretend(const device_limits& pretended) {
  // References from limits() stay valid for ever, even while the process ends.
  static auto& all = *new std::deque<device_limits>;
  pretended_now.store(&all.emplace_back(pretended), std::memory_order_release);
}

}  // namespace softverbs
