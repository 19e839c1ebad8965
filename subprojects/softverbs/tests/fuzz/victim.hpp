#pragma once

#include "fuzz/arena.hpp"

#include "node/node.hpp"
#include "qp/queue_pair.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

namespace softverbs::fuzz {

/// A program on soft0 that trusted its peer with some of its memory.
class victim {
 public:
  enum qp_index : std::uint8_t { rc, rc_shared, uc, ud };
  static constexpr std::size_t qps = 4;
  static constexpr std::size_t keys = 12;
  static constexpr std::uint8_t group_byte = 0xff;  ///< each one of the UD queue pair's group
  struct key {
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
  };

  victim();
  victim(const victim&) = delete;
  victim& operator=(const victim&) = delete;

  /// Connects all queue pairs to those that `peer_qpn` numbers in that slot.
  void connect(std::uint16_t peer_slot);
  static std::uint32_t peer_qpn(std::uint16_t slot, std::size_t index) noexcept {
    return std::uint32_t{slot} << index_bits | static_cast<std::uint32_t>(index + 2);
  }

  [[nodiscard]] node& local_node() const noexcept { return *local_node_; }
  [[nodiscard]] queue_pair& at(std::size_t index) const noexcept {
    return *reinterpret_cast<queue_pair*>(qps_[index]);
  }
  [[nodiscard]] std::uint32_t qpn(std::size_t index) const noexcept { return qps_[index]->qp_num; }
  [[nodiscard]] const key& key_at(std::size_t index) const noexcept { return keys_[index % keys]; }

  /// Sends something of its own to the peer.
  void post(std::size_t index, ibv_wr_opcode opcode, unsigned flags, std::uint32_t bytes) noexcept;
  /// Takes completions, which drives the node when there are none. True: there were some.
  bool poll() noexcept;
  /// Checks the canaries, connects broken queue pairs again, and posts used receives again.
  void recover() noexcept;

 private:
  static constexpr std::size_t slots_each = 4;  ///< receives of a queue pair
  static constexpr std::uint32_t slot_bytes = 200;
  static constexpr std::size_t outbox_bytes = 4096;
  void make_memory();
  void make_queue_pair(std::size_t index);
  void connect_one(std::size_t index) noexcept;
  void bind_window() noexcept;
  void receive(std::size_t index, std::size_t slot) noexcept;
  void take_events() noexcept;
  ibv_mr* register_zone(ibv_pd* pd, const arena::zone& zone, unsigned access);

  arena arena_;
  ibv_context* ctx_;
  node* local_node_;
  ibv_pd* pd_;
  ibv_pd* other_pd_;
  ibv_cq* cq_;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_mr* windowed_ = nullptr;
  ibv_mr* inbox_region_ = nullptr;
  ibv_mr* outbox_region_ = nullptr;
  ibv_mw* window_ = nullptr;
  std::vector<ibv_mr*> regions_;
  std::array<ibv_qp*, qps> qps_{};
  std::array<key, keys> keys_{};
  std::array<std::array<arena::zone, slots_each>, qps> inbox_{};
  std::array<std::array<bool, slots_each>, qps> posted_{};
  arena::zone outbox_;
  std::uint16_t peer_slot_ = 0;
};

}  // namespace softverbs::fuzz
