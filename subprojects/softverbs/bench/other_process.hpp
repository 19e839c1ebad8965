#pragma once

#include "process.hpp"
#include "rig.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace bench {

/// A task for the other process, which does it `n` times when the first process orders it.
enum class task : std::uint32_t { bare, tcp, echo, echo_events, receive };
struct order {
  task does;
  std::uint32_t bytes;
  std::uint64_t n;
};

inline constexpr std::uint32_t depth = 64;
inline constexpr std::size_t large_bytes = 1 << 20;
inline constexpr std::size_t large_count = 16;  ///< buffers in turn: beyond most caches

/// The two cache lines of a bare spin ping-pong.
struct spin_lines {
  alignas(64) std::atomic<std::uint64_t> ping{0};
  alignas(64) std::atomic<std::uint64_t> pong{0};
};

/// One side of the two processes: a connected queue pair and the other ways to the other side.
class endpoint {
 public:
  endpoint();
  [[nodiscard]] rig::card mine() const;
  void connect(const rig::card& peer);

  void send(std::uint32_t bytes);
  void receive(bool events);  ///< one message, and its buffer again
  void write(std::size_t bytes, std::uint64_t n, std::uint32_t window);
  void receive_many(std::uint64_t n);
  void send_many(std::uint32_t bytes, std::uint64_t n);

  rig::device device;
  std::vector<std::byte> memory;

 private:
  rig::mr_ptr mr_;
  rig::channel_ptr channel_;
  rig::cq_ptr send_cq_, receive_cq_;
  rig::qp_ptr qp_;
  rig::card peer_{};
  std::uint64_t sent_ = 0;
  std::uint64_t outstanding_ = 0;
};

/// The first process's view of the second.
class other_process {
 public:
  other_process();
  ~other_process();
  void start(const order& o) { rig::put(control_.get(), o); }
  /// Waits for its end; the allocations the other one made in it.
  std::uint64_t finish() { return rig::get<std::uint64_t>(control_.get()); }
  void bare(std::uint64_t n);
  void tcp(std::uint32_t bytes, std::uint64_t n);
  endpoint& local() noexcept { return local_; }

 private:
  rig::descriptor control_, tcp_;
  spin_lines* lines_;
  endpoint local_;
  rig::child process_;
};

}  // namespace bench
