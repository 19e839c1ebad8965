#include "call.hpp"

#include <cordma/coro/scope.hpp>

#include <cstring>
#include <new>
#include <span>
#include <vector>

using namespace cordma::c;
using cordma::local_mr_slice;
using cordma::task;

namespace {

/// A set of peers, null for this side, and the failure of the first peer that failed.
class peer_set {
 public:
  /// \errors `misuse`; `std::bad_alloc`.
  peer_set(context& in, std::span<const cordma_connection> peers, bool receives)
      : in_{&in}, peers_{peers} {
    for (cordma_connection peer : peers) {
      if (peer == nullptr) continue;
      connection_object& c = found<connection_object>(in, number_of(peer));
      if (receives) receivers_.emplace_back(c);
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return peers_.size(); }
  [[nodiscard]] bool is_self(std::size_t i) const noexcept { return peers_[i] == nullptr; }
  /// Returns a peer's connection. \errors `misuse`: closed meanwhile.
  [[nodiscard]] connection_object& at(std::size_t i) const {
    return found<connection_object>(*in_, number_of(peers_[i]));
  }
  void note_failure(std::size_t peer, const outcome& how) noexcept {
    if (peer >= failed_) return;
    failed_ = peer;
    how_ = how;
  }
  [[nodiscard]] bool has_failed() const noexcept { return failed_ != SIZE_MAX; }
  [[nodiscard]] const outcome& how() const noexcept { return how_; }

 private:
  context* in_;
  std::span<const cordma_connection> peers_;
  std::vector<receiver> receivers_;
  std::size_t failed_ = SIZE_MAX;
  outcome how_;
};

task<> send_one(peer_set& to, std::size_t i, local_mr_slice block) {
  try {
    co_await to.at(i).link.send(message_of(to.at(i), block));
  } catch (const cordma::cancelled&) {
    throw;
  } catch (...) {
    to.note_failure(i, caught_outcome());
  }
}

/// Receives the block of peer `i`, which has as many bytes.
task<> receive_one(peer_set& from, std::size_t i, std::byte* into, std::size_t bytes) {
  try {
    const ref<connection_object> c{from.at(i)};
    cordma_message about{};
    if (c->kept) {
      const cordma::message kept = *c->kept;
      c->kept.reset();
      c->deliver(kept, into, bytes, &about);
    } else {
      const cordma::message next = co_await c->link.next_message();
      c->deliver(next, into, bytes, &about);
    }
    if (about.is_write != 0 || about.bytes != bytes)
      throw misuse{CORDMA_WRONG_LENGTH,
                   "cordma_all_to_all: a peer's block has other bytes: all sides name one length"};
  } catch (const cordma::cancelled&) {
    throw;
  } catch (...) {
    from.note_failure(i, caught_outcome());
  }
}

/// Sends to all at once while it receives from one after another.
task<outcome> exchange(cordma::scheduler& on, peer_set peers, local_mr_slice out, std::byte* into,
                       std::size_t bytes, bool receives) {
  cordma::scope sends{on};
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const local_mr_slice block = receives ? out.slice(i * bytes, bytes) : out;
    if (peers.is_self(i)) {
      if (receives && bytes > 0) std::memcpy(into + i * bytes, block.bytes().data(), bytes);
      continue;
    }
    try {
      sends.spawn(send_one(peers, i, block));
    } catch (const std::bad_alloc&) {
      peers.note_failure(i, caught_outcome());
    }
  }
  const cordma::environment env = co_await cordma::current_environment();
  const auto goes_on = [&] { return !peers.has_failed() && !env.stop.stop_requested(); };
  for (std::size_t i = 0; receives && i < peers.size() && goes_on(); ++i) {
    if (peers.is_self(i)) continue;
    auto received = receive_one(peers, i, into + i * bytes, bytes);
    static_cast<void>(co_await as_result(std::move(received)));
  }
  co_await sends.join();
  if (env.stop.stop_requested()) throw cordma::cancelled{};
  co_return peers.how();
}

/// Notes the failure of a peer, if there is one.
int told(const outcome& how) noexcept { return how.status == CORDMA_OK ? CORDMA_OK : note(how); }

/// Runs `exchange` on the context of the memory.
int exchange_all(std::span<const cordma_connection> peers, cordma_memory memory, std::size_t offset,
                 std::size_t all_bytes, std::byte* into, std::size_t bytes, bool receives,
                 std::int64_t timeout_us) noexcept {
  outcome how;
  const int status = block<memory_object>(
      number_of(memory), timeout_us,
      [&](memory_object& m) {
        return exchange(m.owner.rt.executor(), peer_set{m.owner, peers, receives},
                        m.slice(offset, all_bytes), into, bytes, receives);
      },
      [&](const outcome& ended) { how = ended; });
  return status == CORDMA_OK ? told(how) : status;
}

}  // namespace

int cordma_broadcast(const cordma_connection* peers, size_t count, cordma_memory memory,
                     size_t offset, size_t bytes, int64_t timeout_us) {
  if (peers == nullptr && count > 0)
    return note(CORDMA_BAD_ARGUMENT, "cordma_broadcast: peers is null");
  return exchange_all({peers, count}, memory, offset, bytes, nullptr, bytes, false, timeout_us);
}

int cordma_all_to_all(const cordma_connection* peers, size_t count, cordma_memory memory,
                      size_t offset, void* into, size_t bytes, int64_t timeout_us) {
  if ((peers == nullptr || into == nullptr) && count > 0)
    return note(CORDMA_BAD_ARGUMENT, "cordma_all_to_all: peers or into is null");
  if (count > 0 && bytes > SIZE_MAX / count)
    return note(CORDMA_BAD_ARGUMENT, "cordma_all_to_all: count * bytes is above SIZE_MAX");
  return exchange_all({peers, count}, memory, offset, count * bytes, static_cast<std::byte*>(into),
                      bytes, true, timeout_us);
}
