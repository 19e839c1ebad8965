#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

/// Verbs with less typing, for campaigns and benchmarks: the public API alone. Failures throw.
namespace rig {

using clock = std::chrono::steady_clock;

/// A wait that takes longer than this is a hang.
inline constexpr std::chrono::seconds patience{120};

[[noreturn]] void fail(const std::string& what, int error);
void check(int error, const char* what);  ///< throws unless 0
template <typename T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what, errno);
  return object;
}

template <auto Destroy>
struct destroyer {
  template <typename T>
  void operator()(T* object) const noexcept {
    Destroy(object);
  }
};
using context_ptr = std::unique_ptr<ibv_context, destroyer<ibv_close_device>>;
using pd_ptr = std::unique_ptr<ibv_pd, destroyer<ibv_dealloc_pd>>;
using channel_ptr = std::unique_ptr<ibv_comp_channel, destroyer<ibv_destroy_comp_channel>>;
using cq_ptr = std::unique_ptr<ibv_cq, destroyer<ibv_destroy_cq>>;
using mr_ptr = std::unique_ptr<ibv_mr, destroyer<ibv_dereg_mr>>;
using qp_ptr = std::unique_ptr<ibv_qp, destroyer<ibv_destroy_qp>>;
using ah_ptr = std::unique_ptr<ibv_ah, destroyer<ibv_destroy_ah>>;

/// soft0, opened.
struct device {
  /// The GID of `address`, an IPv4 address of this host in dotted form.
  explicit device(const char* address = "127.0.0.1");
  context_ptr context;
  pd_ptr pd;
  ibv_gid gid{};
  std::uint8_t gid_index = 0;

  [[nodiscard]] cq_ptr make_cq(int entries, ibv_comp_channel* channel = nullptr) const;
  [[nodiscard]] mr_ptr reg(void* address, std::size_t bytes) const;  ///< with all access
};

/// The facts that a peer needs to connect; sent as raw bytes.
struct card {
  std::uint32_t qpn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  ibv_gid gid{};
  std::uint32_t psn = 0;
};

struct qp_options {
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t sends = 64;
  std::uint32_t receives = 64;
  std::uint32_t sges = 4;
  std::uint32_t inline_bytes = 64;
  std::uint8_t timeout = 14;  ///< 4.096 us * 2^timeout
  std::uint8_t retries = 7;
  std::uint8_t rnr_retries = 7;  ///< for ever
  std::uint8_t rd_atomic = 16;
  std::uint32_t psn = 0;  ///< PSN of the first request sent
};
inline constexpr std::uint32_t qkey = 0x11111111;

[[nodiscard]] qp_ptr make_qp(const device& dev, ibv_cq* send, ibv_cq* receive,
                             const qp_options& options = {});
void to_reset(ibv_qp* qp);
void to_error(ibv_qp* qp);
/// RESET to INIT; receives may be posted then.
void to_init(ibv_qp* qp, const qp_options& options = {});
/// INIT to RTS, connected with `peer` unless it is UD.
void connect(ibv_qp* qp, const device& dev, const card& peer, const qp_options& options = {});

/// \errors `what` unless `holds`.
void expect(bool holds, const char* what);

/// Waits for one entry, within `patience`.
ibv_wc wait_one(ibv_cq* cq);
/// Waits for one entry, which must be a success.
ibv_wc wait_success(ibv_cq* cq);

ibv_sge piece(const ibv_mr* mr, const void* address, std::size_t bytes);
void post_recv(ibv_qp* qp, std::uint64_t wr_id, ibv_sge sge);

/// A request with one piece; fill in the rest by hand.
struct request {
  ibv_sge sge{};
  ibv_send_wr wr{};
  request(ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_sge piece,
          unsigned flags = IBV_SEND_SIGNALED);
  request& to(std::uint64_t address, std::uint32_t rkey);
  /// Sets an atomic's operands; does nothing for other requests.
  request& operands(std::uint64_t compare_add, std::uint64_t swap = 0);
  [[nodiscard]] int post(ibv_qp* qp) noexcept;
};

}  // namespace rig
