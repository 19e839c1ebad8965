#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma::verbs {

/// The transport of a queue pair (ibv_create_qp(3); IBTA 9.7 and 9.8).
enum class queue_pair_type : int {
  rc = IBV_QPT_RC,  ///< Reliable connection: messages arrive once, in order.
  uc = IBV_QPT_UC,  ///< Unreliable connection: SEND and WRITE; a lost message is lost.
  ud = IBV_QPT_UD,  ///< Unreliable datagrams: SENDs of at most an MTU, to any number of peers.
  /// Reliable, and only sends: each request names a receive queue of the target's domain (IBTA vol.
  /// 1, annex A14).
  xrc_initiator = IBV_QPT_XRC_SEND,
  xrc_target = IBV_QPT_XRC_RECV,  ///< Takes what an initiator sends, and sends nothing.
};

/// Capacity of a queue pair, as requested; the device may give more.
struct queue_pair_capabilities {
  std::uint32_t send_wr_max = 128;  ///< Work requests in the send queue.
  std::uint32_t recv_wr_max = 128;  ///< Work requests in the receive queue.
  std::uint32_t send_sge_max = 4;   ///< Slices of one send, write or read.
  std::uint32_t recv_sge_max = 4;   ///< Slices of one receive.
  std::uint32_t inline_max = 64;    ///< Bytes that a send or write may carry inline.
};

/// Address of the peer: by LID (InfiniBand without GRH), by GID (RoCE), or by both (InfiniBand
/// across subnets). Use the factory functions, which set every field.
struct address_vector {
  std::uint16_t lid = 0;
  bool is_global = false;  ///< True: a GRH is sent; always on RoCE.
  ibv_gid gid{};
  std::uint32_t gid_index = 0;  ///< Row of the local port's table.
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;    ///< 20 bits.
  std::uint8_t service_level = 0;  ///< 0 to 15.
  ibv_rate static_rate = IBV_RATE_MAX;

  static constexpr address_vector by_lid(std::uint16_t lid) noexcept {
    address_vector to;
    to.lid = lid;
    return to;
  }
  static constexpr address_vector by_gid(const ibv_gid& gid, std::uint32_t gid_index,
                                         std::uint16_t lid = 0) noexcept {
    address_vector to = by_lid(lid);
    to.is_global = true;
    to.gid = gid;
    to.gid_index = gid_index;
    return to;
  }
};

/// Attributes of INIT to RTR (ibv_modify_qp(3)), for receiving.
struct rtr_attributes {
  address_vector peer{};
  ibv_mtu path_mtu = IBV_MTU_1024;       ///< The smaller of both ports' active MTU.
  std::uint32_t dest_qpn = 0;            ///< 24 bits.
  std::uint32_t rq_psn = 0;              ///< 24 bits; the peer's `sq_psn`.
  std::uint32_t dest_rd_atomic_max = 1;  ///< READs and atomics of the peer served at once.
  /// Time that the peer waits after a receiver-not-ready answer: 1 (0.01 ms) to 31 (491.52 ms); 12
  /// is 0.64 ms. 0 would mean 655.36 ms, and is refused.
  std::uint8_t min_rnr_timer = 12;
};

/// Attributes of RTR to RTS, for sending.
struct rts_attributes {
  std::uint32_t sq_psn = 0;         ///< 24 bits; the peer's `rq_psn`.
  std::uint32_t rd_atomic_max = 1;  ///< READs and atomics in flight; the peer's limit.
  /// Retransmission timeout of 4.096 us * 2^timeout: 1 to 31. 0 waits for ever: refused.
  std::uint8_t timeout = 16;
  /// Number of retransmissions: 0 to 7; Soft-RoCE takes 7 for "for ever". The defaults give up
  /// after about 4.096 us * 2^16 * 7 = 1.88 s.
  std::uint8_t retry_cnt = 6;
  /// Retries after a receiver-not-ready answer: 0 to 6. 7 retries for ever: refused.
  std::uint8_t rnr_retry = 6;
};

/// Attributes of a UD queue pair, which has no peer of its own.
struct datagram_attributes {
  std::uint8_t port = 1;
  std::uint16_t pkey_index = 0;
  /// Datagrams with another Q_Key are dropped. The upper half is privileged (IBTA 10.2.5).
  std::uint32_t qkey = 0;
  std::uint32_t sq_psn = 0;  ///< 24 bits.
};

}  // namespace cordma::verbs
