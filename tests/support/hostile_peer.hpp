#pragma once

#include "../../lib/agent/protocol.hpp"
#include "../../lib/messages/message_frame.hpp"
#include "agent/agent.hpp"

#include <cordma/verbs/gid.hpp>
#include "queue/completion_queue_driver.hpp"
#include "request/queue_pair.hpp"

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace cordma::test {

/// The world of an agent under attack, without a connection: a clock that is turned by hand, and an
/// executor whose turns are the test's. The executor enters no kernel, so that a fuzzer can use it.
struct agent_world {
  agent_world();
  /// Resumes, fires and reaps what is ready. Returns how much that was.
  std::size_t iterate() noexcept;

  manual_clock clock;
  cordma::executor executor;
  verbs::context ctx;
  verbs::port_info port;
  verbs::gid_entry gid;
  verbs::protection_domain pd;
  completion_queue_driver driver;
  mr_allocator memory;
  cordma::lending lending;
};

/// An agent and its data queue pair, with what a connection does about their failures.
class victim {
 public:
  /// \param pool  where its data queue pair takes its receives from; null: its own.
  victim(agent_world& world, const agent_options& options, shared_receives* pool = nullptr);
  victim(const victim&) = delete;
  victim& operator=(const victim&) = delete;
  ~victim() = default;

  [[nodiscard]] agent& self() noexcept { return *agent_; }
  [[nodiscard]] queue_pair& data() noexcept { return data_; }
  [[nodiscard]] callback_queue_pair& control() noexcept { return agent_->control(); }
  [[nodiscard]] bool is_cut_off() const noexcept { return data_.has_failed(); }
  /// Gives the reason.
  [[nodiscard]] std::error_code reason() const noexcept { return data_.failure_reason().code; }
  /// Does what `connection::drop` does.
  void cut_off(errc why) noexcept;

  /// The proof that the peer must send first; set before there is a peer.
  std::optional<agent_protocol::payload> expected;

 private:
  friend class hostile_peer;
  struct watch : waiter {
    watch(victim& v, callback_queue_pair& watched, function then) noexcept
        : waiter{then}, of{v}, wait{watched.failed_event().wait()} {}
    victim& of;
    event::wait_op wait;
  };
  void start(const remote_mr_slice& flush_word);
  static std::coroutine_handle<> on_failure(waiter& self) noexcept;
  static std::coroutine_handle<> on_agent_failure(waiter& self) noexcept;

  agent_world& world_;
  queue_pair data_;
  std::unique_ptr<agent> agent_;
  std::optional<watch> data_watch_;
  std::optional<watch> control_watch_;
};

/// A message that came on a data queue pair: a stream's frame, and the bytes of data and control.
struct heard_frame : message_protocol::frame {
  static constexpr std::size_t bytes_max = 128;
  [[nodiscard]] std::span<const std::byte> payload() const noexcept {
    return std::span{bytes}.first(size_bytes);
  }
  std::array<std::byte, bytes_max> bytes{};
  std::size_t size_bytes = 0;
};

/// The other end of a victim's two queue pairs: says whatever it is told to, by raw verbs.
class hostile_peer {
 public:
  using frame = agent_protocol::frame;
  static constexpr std::uint32_t receives = 128;
  static constexpr std::uint32_t sends = 64;
  static constexpr std::uint32_t data_receives = 64;
  static constexpr std::size_t message_bytes_max = heard_frame::bytes_max;
  static constexpr std::size_t landing_bytes = 4096;

  /// \param receives_posted  fewer than 32: it promises credits that it does not have.
  hostile_peer(agent_world& world, victim& v, std::uint32_t receives_posted = receives);

  /// A frame with what it has taken, and a lie added to that.
  void say(frame f, std::uint32_t lie = 0);
  /// Any bytes, up to `message_bytes_max` of them.
  void say(std::span<const std::byte> message, ibv_wr_opcode how = IBV_WR_SEND);
  /// Sends bytes on the data queue pair, with a key to invalidate if that is `how`.
  void say_data(std::span<const std::byte> message, ibv_wr_opcode how = IBV_WR_SEND,
                std::uint32_t rkey = 0);
  /// Takes what came, into `heard`. Returns how many completions.
  std::size_t listen();
  /// Takes, from now on, what comes on the data queue pair, too, into `heard_data`: the frames of a
  /// stream.
  void listen_to_data();

  /// A request on the data queue pair, from or to `landing`. Its outcome is in `reached`.
  void reach(ibv_wr_opcode how, std::uint64_t address, std::uint32_t length, std::uint32_t rkey);

  [[nodiscard]] std::span<std::byte> landing() noexcept;
  [[nodiscard]] std::uint32_t rkey() const noexcept { return registration_.rkey(); }
  [[nodiscard]] std::uint64_t address() noexcept {
    return reinterpret_cast<std::uint64_t>(landing().data());
  }
  /// Ends both queue pairs, as a process does that dies.
  void die();

  std::vector<frame> heard;
  std::vector<heard_frame> heard_data;
  std::optional<ibv_wc_status> reached;
  std::uint32_t taken = 0;
  std::uint32_t data_taken = message_protocol::count_first;
  bool posts_again = true;  ///< a receive for each that was used

 private:
  static constexpr std::size_t bytes = receives * agent_protocol::frame_bytes +
                                       std::size_t{2 * sends + data_receives} * message_bytes_max +
                                       landing_bytes;

  static constexpr std::size_t page_bytes = 4096;
  static_assert(bytes % page_bytes == 0, "the landing, which is last, begins a page");
  struct page_deleter {
    void operator()(std::byte* pages) const noexcept {
      ::operator delete(pages, std::align_val_t{page_bytes});
    }
  };

  void post_receive(std::uint32_t index);
  void post_data_receive(std::uint32_t index);
  void hear_data(std::span<const std::byte> message);
  void send(verbs::queue_pair& qp, std::span<const std::byte> message, ibv_wr_opcode how,
            std::byte* from, std::uint32_t rkey = 0);

  verbs::protection_domain pd_;
  std::unique_ptr<std::byte, page_deleter> memory_;
  verbs::memory_region registration_;
  verbs::completion_queue cq_;
  verbs::queue_pair data_;
  verbs::queue_pair control_;
  std::uint32_t said_ = 0;
  std::uint32_t said_data_ = 0;
};

}  // namespace cordma::test
