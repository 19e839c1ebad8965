#include <cordma/verbs/device.hpp>

#include "device.hpp"
#include "device_files.hpp"
#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <endian.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cordma::verbs {
namespace {

using detail::detail_text;
using detail::throw_errno;
using detail::throw_failure;

class device_list {
 public:
  device_list() {
    devices_.reset(ibv_get_device_list(&count_));
    // ENOSYS: the kernel has no RDMA support loaded. The caller sees a machine without devices.
    if (devices_ == nullptr && errno != ENOSYS) {
      throw_errno(errno, "ibv_get_device_list", "cannot list the RDMA devices in /sys/class");
    }
  }
  [[nodiscard]] ibv_device** begin() const noexcept { return devices_.get(); }
  [[nodiscard]] ibv_device** end() const noexcept { return begin() + count_; }

  [[nodiscard]] std::string names() const {
    std::string text;
    for (ibv_device* device : *this) {
      if (!text.empty()) text += ", ";
      text += ibv_get_device_name(device);
    }
    return text;
  }

 private:
  struct freer {
    void operator()(ibv_device** devices) const noexcept { ibv_free_device_list(devices); }
  };
  int count_ = 0;
  std::unique_ptr<ibv_device*[], freer> devices_;
};

device_info info_of(ibv_device* device) {
  device_info info;
  info.name = ibv_get_device_name(device);
  info.guid = be64toh(ibv_get_device_guid(device));
  info.node_type = device->node_type;
  info.transport = device->transport_type;
  return info;
}

std::uint32_t count_of(int value) noexcept {
  return static_cast<std::uint32_t>(std::max(value, 0));
}

/// \errors The kernel has the device (if `name` is empty: any), and its file is the problem.
void explain_absence(std::string_view name) {
  const auto why = detail::why_unusable(detail::device_files::read(), name);
  if (why) throw error{*why};
}

[[noreturn]] void throw_no_device(std::string_view name) {
  explain_absence(name);
  throw_failure(errc::no_device, "ibv_get_device_list",
                "this machine has none: attach an RNIC, or use Soft-RoCE (modprobe rdma_rxe; rdma "
                "link add rxe0 type rxe netdev eth0), or softverbs (LD_PRELOAD=libsoftverbs.so.0)");
}

using context_ptr = std::unique_ptr<ibv_context, int (*)(ibv_context*)>;

context_ptr open(ibv_device* device) {
  errno = 0;
  context_ptr ctx{ibv_open_device(device), &ibv_close_device};
  // Some paths of libibverbs fail without an errno.
  if (ctx == nullptr) {
    const int error_number = errno != 0 ? errno : ENODEV;
    explain_absence(ibv_get_device_name(device));  // libibverbs may report EACCES as ENOENT.
    throw error{detail::cannot_open("ibv_open_device", ibv_get_device_name(device),
                                    std::string{"/dev/infiniband/"} + device->dev_name,
                                    error_number)};
  }
  return ctx;
}

ibv_device_attr_ex query_device(ibv_context* ctx) {
  ibv_device_attr_ex attributes{};
  if (const int rc = ibv_query_device_ex(ctx, nullptr, &attributes); rc != 0) {
    throw_errno(rc, "ibv_query_device", ibv_get_device_name(ctx->device));
  }
  return attributes;
}

/// IB_UVERBS_DEVICE_ATOMIC_WRITE of the kernel, for which libibverbs 44 has no name.
constexpr std::uint64_t atomic_write_flag = std::uint64_t{1} << 40;

bool has_active_port(ibv_context* ctx) {
  const unsigned ports = query_device(ctx).orig_attr.phys_port_cnt;
  for (unsigned port = 1; port <= ports; ++port) {
    ibv_port_attr attributes{};
    if (ibv_query_port(ctx, std::uint8_t(port), &attributes) == 0 &&
        attributes.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

context_ptr open_first_active(const device_list& devices) {
  for (ibv_device* device : devices) {
    context_ptr ctx = open(device);
    if (has_active_port(ctx.get())) return ctx;
  }
  throw_failure(errc::no_device, "ibv_query_port",
                detail_text("no port of %s is ACTIVE; bring the network interface or the subnet "
                            "manager up, or name the device",
                            devices.names().c_str()));
}

context_ptr open_by_name(const device_list& devices, std::string_view name) {
  if (devices.begin() == devices.end()) throw_no_device(name);
  if (name.empty()) return open_first_active(devices);
  for (ibv_device* device : devices) {
    if (name == ibv_get_device_name(device)) return open(device);
  }
  explain_absence(name);
  throw_failure(errc::no_device, "ibv_get_device_list",
                detail_text("no device is named '%.64s'; there is: %s", std::string{name}.c_str(),
                            devices.names().c_str()));
}

}  // namespace

std::vector<device_info> list_devices() {
  std::vector<device_info> infos;
  for (ibv_device* device : device_list{}) infos.push_back(info_of(device));
  if (infos.empty()) explain_absence({});
  return infos;
}

device_limits limits_of(const ibv_device_attr_ex& extended) noexcept {
  const ibv_device_attr& a = extended.orig_attr;
  constexpr unsigned type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return {.qp_max = count_of(a.max_qp),
          .qp_wr_max = count_of(a.max_qp_wr),
          .sge_max = count_of(a.max_sge),
          .sge_rd_max = count_of(a.max_sge_rd),
          .cq_max = count_of(a.max_cq),
          .cqe_max = count_of(a.max_cqe),
          .mr_max = count_of(a.max_mr),
          .mr_size_max_bytes = a.max_mr_size,
          .pd_max = count_of(a.max_pd),
          .mw_max = count_of(a.max_mw),
          .qp_rd_atom_max = count_of(a.max_qp_rd_atom),
          .qp_init_rd_atom_max = count_of(a.max_qp_init_rd_atom),
          .srq_max = count_of(a.max_srq),
          .srq_wr_max = count_of(a.max_srq_wr),
          .srq_sge_max = count_of(a.max_srq_sge),
          .pkey_max = a.max_pkeys,
          .port_count = a.phys_port_cnt,
          .atomic = a.atomic_cap,
          .memory_window_type_2 = (a.device_cap_flags & type_2) != 0,
          .memory_window_type_1 = (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0,
          .send_with_invalidate = (a.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0,
          .xrc = (a.device_cap_flags & IBV_DEVICE_XRC) != 0,
          .atomic_write = (extended.device_cap_flags_ex & atomic_write_flag) != 0,
          .rate_limit_min_kbps = extended.packet_pacing_caps.qp_rate_limit_min,
          .rate_limit_max_kbps = extended.packet_pacing_caps.qp_rate_limit_max,
          .rate_limited_types = extended.packet_pacing_caps.supported_qpts};
}

void context::closer::operator()(ibv_context* ctx) const noexcept {
  // An error here means the device is gone, and then so is the context.
  ibv_close_device(ctx);
}

context::context(std::string_view name) {
  const device_list devices;
  context_.reset(open_by_name(devices, name).release());
  info_ = info_of(context_->device);
  limits_ = limits_of(query_device(context_.get()));
  const int flags = ::fcntl(async_fd(), F_GETFL);
  if (flags < 0 || ::fcntl(async_fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    throw_errno(errno, "fcntl", "cannot make the device's async fd non-blocking");
  }
}

port_info context::query_port(std::uint8_t port) const {
  detail::check_range("ibv_query_port", "port", port, 1, limits_.port_count, "the device's");
  ibv_port_attr a{};
  if (const int rc = ibv_query_port(context_.get(), port, &a); rc != 0) {
    throw_errno(rc, "ibv_query_port", name(), {"port", port});
  }
  return {.number = port,
          .state = a.state,
          .link_layer = a.link_layer,
          .lid = a.lid,
          .mtu_active = a.active_mtu,
          .mtu_max = a.max_mtu,
          .message_max_bytes = a.max_msg_sz,
          .gid_count = count_of(a.gid_tbl_len),
          .pkey_count = a.pkey_tbl_len};
}

port_info context::active_port() const {
  for (unsigned port = 1; port <= limits_.port_count; ++port) {
    const port_info info = query_port(std::uint8_t(port));
    if (info.is_active()) return info;
  }
  throw_failure(errc::no_device, "ibv_query_port",
                detail_text("no port of %s is ACTIVE; bring its network interface or the subnet "
                            "manager up",
                            info_.name.c_str()));
}

std::uint16_t context::query_pkey(std::uint8_t port, std::uint16_t index) const {
  __be16 pkey = 0;
  errno = 0;
  if (ibv_query_pkey(context_.get(), port, index, &pkey) != 0) {
    throw_errno(errno != 0 ? errno : EINVAL, "ibv_query_pkey",
                detail_text("%s, pkey_index %u", info_.name.c_str(), unsigned{index}),
                {"port", port});
  }
  return be16toh(pkey);
}

std::vector<gid_entry> context::gid_table(std::uint8_t port) const {
  detail::check_range("ibv_query_gid_table", "port", port, 1, limits_.port_count, "the device's");
  std::size_t rows = 0;  // The call gives the tables of all ports at once.
  for (unsigned p = 1; p <= limits_.port_count; ++p) {
    rows += query_port(static_cast<std::uint8_t>(p)).gid_count;
  }
  std::vector<ibv_gid_entry> raw(rows);
  const ssize_t count = ibv_query_gid_table(context_.get(), raw.data(), raw.size(), 0);
  if (count < 0) {
    throw_errno(static_cast<int>(-count), "ibv_query_gid_table", name(), {"port", port});
  }
  std::vector<gid_entry> table;
  for (const ibv_gid_entry& row : std::span{raw}.first(static_cast<std::size_t>(count))) {
    // An address names its row in 8 bits (ibv_global_route): the rest cannot be used.
    if (row.port_num != port || row.gid_index > 255) continue;
    table.push_back({.gid = row.gid,
                     .index = row.gid_index,
                     .type = gid_type(row.gid_type),
                     .netdev_ifindex = row.ndev_ifindex});
  }
  return table;
}

}  // namespace cordma::verbs
