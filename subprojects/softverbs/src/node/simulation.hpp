#pragma once

#include "link/link.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace softverbs {

class node;

/// A host of a simulation, with one process. A caller decides what happens when, in place of the
/// engine and the listeners of its node. \thread the simulation's.
class simulated_host : public simulated_network {
 public:
  simulated_host(std::span<const ibv_gid> gids, std::uint16_t slot, std::uint32_t first_index);
  simulated_host(const simulated_host&) = delete;
  /// Destroys the node, which nobody has open.
  virtual ~simulated_host();

  /// The host whose process makes the calls now; null: this process is not simulated.
  [[nodiscard]] static simulated_host* current() noexcept { return current_; }
  static simulated_host* enter(simulated_host* next) noexcept {
    return std::exchange(current_, next);
  }

  [[nodiscard]] std::span<const ibv_gid> gids() const noexcept { return gids_; }
  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }
  [[nodiscard]] std::uint32_t first_index() const noexcept { return first_index_; }
  /// The process's node; null before the first open.
  [[nodiscard]] node* local_node() const noexcept { return node_; }

  /// The node has work: call its steps soon. \thread under any of its locks.
  virtual void on_work() noexcept = 0;
  /// Makes a route to that address: memory, and the peer's end of it. False: nobody is there.
  virtual bool connect(const node_address& to, link::setup& how) noexcept = 0;
  /// The device has written memory of the process. `rkey`: of the peer that did, or 0. \thread
  /// under locks of queue pairs.
  virtual void on_written(const std::byte* at, std::uint64_t bytes,
                          std::uint32_t rkey) noexcept = 0;
  /// The process calls a verb. Returns 0, or the error with which the verb fails. \thread holds no
  /// lock, except the batch of ibv_wr_complete.
  virtual int on_call(const char* verb, ibv_context* ctx) noexcept = 0;

 private:
  friend class node;
  static simulated_host* current_;
  std::vector<ibv_gid> gids_;
  std::uint16_t slot_;
  std::uint32_t first_index_;
  node* node_ = nullptr;
};

}  // namespace softverbs
