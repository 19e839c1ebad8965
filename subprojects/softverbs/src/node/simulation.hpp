#pragma once

#include "link/link.hpp"
#include "queue/event_tokens.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace softverbs {

class node;
struct device_limits;

/// A host of a simulation, with one process. A caller decides what happens when, in place of the
/// engine and the listeners of its node. \thread the simulation's.
class simulated_host : public simulated_network, public token_watcher {
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
  /// \errors std::bad_alloc
  void change_gids(std::span<const ibv_gid> now) { gids_.assign(now.begin(), now.end()); }
  [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }
  [[nodiscard]] std::uint32_t first_index() const noexcept { return first_index_; }
  [[nodiscard]] bool is_port_up() const noexcept { return is_port_up_; }
  void set_port(bool up) noexcept { is_port_up_ = up; }
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  /// The device has failed for good: no queue pair gets ready any more.
  void fail() noexcept { has_failed_ = true; }
  /// The process's node; null before the first open.
  [[nodiscard]] node* local_node() const noexcept { return node_; }

  /// The contexts that are open, oldest first.
  [[nodiscard]] std::span<ibv_context* const> contexts() const noexcept { return contexts_; }
  /// \errors std::bad_alloc
  void add_context(ibv_context& ctx, event_tokens& events);
  void remove_context(const ibv_context& ctx) noexcept { std::erase(contexts_, &ctx); }
  /// From now on the host knows whether the descriptor is readable. \errors std::bad_alloc
  void watch(event_tokens& tokens);
  /// The tokens of a descriptor; null: it is none of the host's.
  [[nodiscard]] const event_tokens* find_tokens(int fd) const noexcept;

  void on_token(const event_tokens& of) noexcept final { on_readable(of.fd()); }
  /// False: nobody asks the kernel whether a descriptor is readable.
  [[nodiscard]] virtual bool writes_descriptors() const noexcept = 0;
  /// True: completions that came before a completion queue was armed raise no event.
  [[nodiscard]] virtual bool arms_for_later() const noexcept = 0;
  void on_close(const event_tokens& of) noexcept final { descriptors_.erase(of.fd()); }

  /// The node has work: call its steps soon. \thread under any of its locks.
  virtual void on_work() noexcept = 0;
  /// A descriptor has an event more. \thread under any lock of the node.
  virtual void on_readable(int fd) noexcept = 0;
  /// A queue pair or a shared receive queue of the process is destroyed.
  virtual void on_destroyed(const void* queue) noexcept = 0;
  /// Makes a route to that address: memory, and the peer's end of it. False: nobody is there.
  virtual bool connect(const node_address& to, link::setup& how) noexcept = 0;
  /// The device has these limits from now on. The host is entered. \errors std::bad_alloc
  virtual void pretend(const device_limits& now) = 0;
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
  bool is_port_up_ = true;
  bool has_failed_ = false;
  node* node_ = nullptr;
  std::vector<ibv_context*> contexts_;
  std::map<int, event_tokens*> descriptors_;
};

}  // namespace softverbs
