#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/gid.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::verbs {

struct device_info {
  std::string name;        ///< "rxe0", "mlx5_0".
  std::uint64_t guid = 0;  ///< Host byte order; 0 when the device has none.
  ibv_node_type node_type = IBV_NODE_UNKNOWN;
  ibv_transport_type transport = IBV_TRANSPORT_UNKNOWN;

  device_info() noexcept = default;
};

/// Returns the RDMA devices of this machine; empty when there is none or the kernel has no RDMA
/// support.
/// \errors  EACCES, ENOENT: a device file in /dev/infiniband cannot be opened, as in containers and
///   without the right group. The detail has the way out.
/// \thread any.
/// \cost reads sysfs; not for the data path.
CORDMA_EXPORT std::vector<device_info> list_devices();

/// Limits of a device (ibv_query_device(3)), under cordma's names. Limits are counts, unless a name
/// ends in `_bytes`.
struct device_limits {
  std::uint32_t qp_max = 0;
  std::uint32_t qp_wr_max = 0;   ///< Work requests in one send or receive queue.
  std::uint32_t sge_max = 0;     ///< Slices of one work request.
  std::uint32_t sge_rd_max = 0;  ///< Slices of one READ.
  std::uint32_t cq_max = 0;
  std::uint32_t cqe_max = 0;  ///< CQEs in one completion queue.
  std::uint32_t mr_max = 0;
  std::uint64_t mr_size_max_bytes = 0;
  std::uint32_t pd_max = 0;
  std::uint32_t mw_max = 0;
  std::uint32_t qp_rd_atom_max = 0;       ///< READs and atomics a QP serves at once.
  std::uint32_t qp_init_rd_atom_max = 0;  ///< READs and atomics a QP may have in flight.
  std::uint32_t srq_max = 0;              ///< Shared receive queues; 0: not supported.
  std::uint32_t srq_wr_max = 0;           ///< Receives in one shared receive queue.
  std::uint32_t srq_sge_max = 0;          ///< Slices of one shared receive.
  std::uint32_t pkey_max = 0;
  std::uint32_t port_count = 0;
  ibv_atomic_cap atomic = IBV_ATOMIC_NONE;
  bool memory_window_type_2 = false;  ///< 2A or 2B.
  bool memory_window_type_1 = false;
  bool send_with_invalidate = false;  ///< Part of the base memory management extensions.
  bool xrc = false;                   ///< IBV_DEVICE_XRC.
  bool atomic_write = false;          ///< 8-byte ATOMIC WRITE, on RC.
  std::uint32_t rate_limit_min_kbps = 0;
  std::uint32_t rate_limit_max_kbps = 0;  ///< 0: not supported.
  std::uint32_t rate_limited_types = 0;   ///< One bit for each type, 1 << IBV_QPT_RC and so on.
};

/// Returns the payload bytes of a path MTU; 0 for a value that is none.
constexpr std::uint32_t bytes_of(ibv_mtu mtu) noexcept {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << unsigned(mtu) : 0u;
}

/// Snapshot of a port, from ibv_query_port(3).
struct port_info {
  std::uint8_t number = 0;  ///< From 1.
  ibv_port_state state = IBV_PORT_NOP;
  std::uint8_t link_layer = IBV_LINK_LAYER_UNSPECIFIED;  ///< IBV_LINK_LAYER_ETHERNET: RoCE.
  std::uint16_t lid = 0;                                 ///< 0 on Ethernet.
  ibv_mtu mtu_active = IBV_MTU_256;                      ///< The largest path MTU usable now.
  ibv_mtu mtu_max = IBV_MTU_256;
  std::uint32_t message_max_bytes = 0;
  std::uint32_t gid_count = 0;   ///< Rows in the GID table, empty ones included.
  std::uint32_t pkey_count = 0;  ///< Rows in the P_Key table.

  [[nodiscard]] bool is_active() const noexcept { return state == IBV_PORT_ACTIVE; }
  [[nodiscard]] bool is_ethernet() const noexcept { return link_layer == IBV_LINK_LAYER_ETHERNET; }
};

/// Owns one opened device (`ibv_context`). Move-only; must outlive all that is made from it. Its
/// async fd is non-blocking: `runtime::next_device_event` reads it. \thread any for the const
/// members; libibverbs locks what needs it.
class CORDMA_EXPORT context {
 public:
  /// \param name  as `list_devices` gives it; empty: the first device that has an ACTIVE port.
  /// \errors  errc::no_device: there is none, none is ACTIVE, or none of that name (the detail
  ///   lists the devices). EACCES, EPERM, ENOENT: the file in /dev/infiniband cannot be opened.
  /// \cost  some system calls and milliseconds.
  explicit context(std::string_view name = {});

  [[nodiscard]] ibv_context* native_handle() const noexcept { return context_.get(); }
  [[nodiscard]] std::string_view name() const noexcept { return info_.name; }
  [[nodiscard]] const device_info& info() const noexcept { return info_; }
  [[nodiscard]] const device_limits& limits() const noexcept { return limits_; }
  [[nodiscard]] int async_fd() const noexcept { return context_->async_fd; }
  /// Returns how many completion vectors (interrupts) a completion queue can be bound to; at least
  /// 1.
  [[nodiscard]] int comp_vector_count() const noexcept { return context_->num_comp_vectors; }

  /// \errors  errc::limit_exceeded: the device has no such port. \cost one system call.
  [[nodiscard]] port_info query_port(std::uint8_t port) const;
  /// Returns the first ACTIVE port. \errors errc::no_device: none is ACTIVE.
  [[nodiscard]] port_info active_port() const;
  /// Returns a row of the port's P_Key table, in host byte order; 0x8000 is the bit of a full
  /// member. An empty row is 0. \errors an errno: no such row, or port. \cost  some system calls.
  [[nodiscard]] std::uint16_t query_pkey(std::uint8_t port, std::uint16_t index) const;
  /// Returns the rows of the port's table that hold a GID, by index; those above 255 cannot be
  /// used.
  [[nodiscard]] std::vector<gid_entry> gid_table(std::uint8_t port) const;

 private:
  struct closer {
    void operator()(ibv_context* ctx) const noexcept;
  };

  std::unique_ptr<ibv_context, closer> context_;
  device_info info_;
  device_limits limits_;
};

/// Receiver-not-ready (RNR) counters of one port, for all programs of the machine, as far as the
/// driver reports them (/sys/class/infiniband/DEVICE/ports/N/hw_counters).
struct rnr_counters {
  struct source {
    std::string_view name;  ///< Name in the kernel.
    std::string_view help;
  };
  static constexpr std::array<source, 5> sources{{
      {"out_of_buffer", "this side had no receive for a message (mlx5)"},
      {"rnr_nak_retry_err", "the peer answered RNR to a request (mlx5)"},
      {"send_rnr_err", "this side answered RNR (rxe)"},
      {"rcvd_rnr_err", "the peer answered RNR to a request (rxe)"},
      {"retry_rnr_exceeded_err", "requests given up after the last RNR (rxe)"},
  }};
  /// Values in the order of `sources`; none: the device does not have the counter.
  std::array<std::optional<std::uint64_t>, sources.size()> values{};
};

/// Asynchronous event of the device (ibv_get_async_event(3)), already acknowledged. Compare its
/// pointers with live owners only: the object may have been destroyed since.
struct async_event {
  ibv_event_type kind{};
  ibv_cq* cq = nullptr;    ///< Set for CQ_ERR only.
  ibv_qp* qp = nullptr;    ///< Set for the QP_* kinds, COMM_EST, SQ_DRAINED and PATH_MIG*.
  ibv_srq* srq = nullptr;  ///< Set for the SRQ_* kinds.
  int port = 0;            ///< Set for the kinds of a port; 0: the event names no port.
};

/// Returns the kind in words: "local work queue catastrophic error".
CORDMA_EXPORT const char* to_string(ibv_event_type kind) noexcept;

}  // namespace cordma::verbs
