#pragma once

#include "second_thread.hpp"

#include "request/queue_pair.hpp"
#include "support/raw_verbs.hpp"

#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>

#include <sys/types.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>

namespace bench {

/// How an end notices that something completed. Only raw verbs do it by the manual.
enum class noticing : unsigned char { busy, event, adaptive, by_the_manual };

/// The most that is under way at once.
constexpr std::uint32_t link_depth = 64;
/// The depth of the queue pairs' queues. Unsignaled requests keep their slots longer than they
/// take. A message may come before the receive of the message before is posted again.
constexpr std::uint32_t queue_depth = 2 * link_depth;

/// A queue pair of raw verbs and the loop that a program without a library would write. The loop
/// polls, or arms, polls once more and blocks in ibv_get_cq_event. With `noticing::by_the_manual`
/// the loop follows ibv_get_cq_event(3): gets an event, acknowledges it, arms, and polls until
/// there is nothing.
class raw_side {
 public:
  raw_side(cordma::verbs::context& ctx, cordma::verbs::protection_domain& pd, noticing how);

  void post(support::raw::request&& what);
  /// Posts a request that only now and then has a completion entry, which `await_sent` does not
  /// see.
  void post_seldom_signaled(support::raw::request&& what);
  void post_receive(support::raw::receive&& what) { support::raw::post(qp_, std::move(what)); }
  /// Polls once, and blocks where there is nothing, if that is how it notices.
  void reap();
  /// Polls, and never blocks.
  void poll();
  /// Reaps until there is one more message, or one more end of a signaled request.
  void await_message();
  void await_sent();

  cordma::verbs::queue_pair& qp() noexcept { return qp_; }
  std::uint64_t blocked = 0, arms = 0, completions = 0;
  std::uint64_t messages = 0, sent = 0;  ///< messages and sends that nobody has taken

 private:
  void arm();
  void get_event();

  const noticing how_;
  std::unique_ptr<cordma::verbs::completion_channel> channel_;
  cordma::verbs::completion_queue cq_;
  cordma::verbs::queue_pair qp_;
  std::uint32_t unsignaled_ = 0;
  bool is_armed_ = false;
};

/// A queue pair of ours, with an executor of its own.
struct our_side {
  our_side(cordma::verbs::context& ctx, cordma::verbs::protection_domain& pd, noticing how,
           std::size_t message_max_bytes);
  cordma::executor executor;
  cordma::completion_queue_driver driver;
  cordma::queue_pair qp;
};

/// One end of the link of two processes: a queue pair of every kind, connected to the other's, and
/// memory that the other may reach.
class link_end {
 public:
  /// The address of an end, for the other end.
  struct address {
    ibv_gid gid;
    std::uint16_t lid;
    std::uint64_t memory;
    std::uint32_t rkey;
    std::array<std::uint32_t, 6> queue_pairs;
  };

  /// \param message_bytes  that go there and back, at most a kibibyte.
  explicit link_end(std::size_t message_bytes);
  [[nodiscard]] address own_address();
  void connect(const address& other);

  raw_side& raw(noticing how) {
    return *raw_[how == noticing::busy ? 0 : how == noticing::by_the_manual ? 2 : 1];
  }
  our_side& ours(noticing how) { return *ours_[std::size_t(how)]; }

  [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
  /// Memory to send or write from, and to read to.
  [[nodiscard]] cordma::local_mr_slice outbox() { return buffer_.slice(0, message_bytes_); }
  /// Memory where messages land.
  [[nodiscard]] cordma::local_mr_slice inbox() {
    return buffer_.slice(receive_offset, message_bytes_);
  }
  /// The memory of the other end's `there`.
  [[nodiscard]] cordma::remote_mr_slice there() const noexcept { return there_; }
  /// The protection domain of the raw queue pairs.
  [[nodiscard]] cordma::verbs::protection_domain& domain() noexcept { return pd_; }
  /// The last byte of what the other wrote `there`.
  [[nodiscard]] std::uint8_t arrived() noexcept;
  /// The next byte to write there; it differs from the last.
  void number_outbox(std::uint8_t number) noexcept;

  /// A raw request of this opcode with the outbox, inlined where ours would be.
  [[nodiscard]] support::raw::request raw_request(ibv_wr_opcode opcode) const {
    return {opcode, out_, {there_.address(), there_.rkey()}, inline_max_};
  }
  [[nodiscard]] support::raw::receive raw_receive() const { return support::raw::receive{in_}; }

  /// The number that an end wrote last, in ping-pongs by memory; both ends count on.
  std::uint8_t written = 0;

  cordma::verbs::context ctx;
  cordma::verbs::port_info port;

 private:
  static constexpr std::size_t inbox_offset = 1024;
  static constexpr std::size_t receive_offset = 2048;
  static constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

  template <class Body>
  void each_queue_pair(Body body);

  const std::size_t message_bytes_;
  cordma::verbs::protection_domain pd_;
  cordma::mr_allocator memory_;
  cordma::local_mr buffer_;
  std::array<std::unique_ptr<raw_side>, 3> raw_;
  std::array<std::unique_ptr<our_side>, 3> ours_;
  cordma::remote_mr_slice there_;
  ibv_sge out_{}, in_{};
  std::size_t inline_max_ = 0;  ///< limit of the raw queue pairs
};

/// This process and a forked one, each on a processor of its own, joined by a link. The other
/// process does what this one orders. To be made before this process has a device or a thread.
class two_processes {
 public:
  using servant = void (*)(link_end& there, unsigned what, std::uint64_t n);
  explicit two_processes(servant serve, std::size_t message_bytes = 8);
  two_processes(const two_processes&) = delete;
  two_processes& operator=(const two_processes&) = delete;
  ~two_processes();

  link_end& here() noexcept { return *here_; }
  /// The other calls `serve(…, what, n)`, some time from now.
  void order(unsigned what, std::uint64_t n) const;
  [[nodiscard]] pid_t other() const noexcept { return other_; }

 private:
  [[noreturn]] void live(servant serve, std::size_t message_bytes) const;
  static std::unique_ptr<link_end> meet(int socket, std::size_t message_bytes);

  std::unique_ptr<pinned> pinned_;
  int socket_ = -1;
  pid_t other_ = -1;
  std::unique_ptr<link_end> here_;
};

}  // namespace bench
