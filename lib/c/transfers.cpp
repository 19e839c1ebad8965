#include "call.hpp"
#include "direct_request.hpp"
#include "request/queue_pair.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

using namespace cordma::c;
using cordma::local_mr_slice;
using cordma::message;

namespace cordma::c {

void throw_wrong_connection() {
  throw error{{.code = errc::wrong_connection,
               .call = "cordma",
               .detail = "the remote memory was named on another connection: use that one"}};
}

local_mr_slice message_of(const connection_object& to, const local_mr_slice& memory) {
  if (memory.size_bytes() > to.peer_receive_bytes)
    throw error{{.code = errc::wrong_length,
                 .call = "cordma",
                 .detail = "a message of " + std::to_string(memory.size_bytes()) +
                           " bytes, above the peer's receive buffers of " +
                           std::to_string(to.peer_receive_bytes)}};
  return memory;
}

}  // namespace cordma::c

namespace {

constexpr std::uint64_t word_bytes = 8;
constexpr auto ignore = [](auto&&) noexcept {};

/// Finds the memory that a blocking call names.
[[gnu::always_inline]] inline local_mr_slice memory_of(connection_object& c, cordma_memory memory,
                                                       std::size_t offset, std::size_t bytes) {
  return found<memory_object>(c.owner, number_of(memory)).slice(offset, bytes);
}

/// Waits for the request `make(connection)`, and gives its value to `take`.
template <class Make, class Take>
[[gnu::always_inline]] inline int transfer(cordma_connection connection, std::int64_t timeout_us,
                                           Make make, Take take) noexcept {
  const handle number = number_of(connection);
  const auto here = handles().find(kind::connection, number);
  if (here.how != handle_table::state::found) [[unlikely]] {
    return block<connection_object>(
        number, timeout_us, [&](connection_object& c) { return c.link.await(make(c)); }, take);
  }
  return guarded([&] {
    auto& c = static_cast<connection_object&>(*here.what);
    context& in = c.owner;
    if (runs_context) [[unlikely]]
      return in_callback();
    direct_request request{c.link.qp().sends(), make(c), timeout_us};
    if (!request.begin()) in.finish(request);
    in.kick();
    return taken(request, take);
  });
}

struct received_message {
  ref<connection_object> by;
  message next;
};

/// The next message: one that was kept, or the next that comes. Refers to the connection, and is
/// destroyed on its thread.
class next_op {
 public:
  using value_type = received_message;
  explicit next_op(connection_object& of) : by_{of}, op_{of.link.next_message()} {}
  bool start(cordma::waiter& w, const cordma::environment& env) noexcept {
    return by_.of().kept || op_.start(w, env);
  }
  [[nodiscard]] bool failed() const noexcept { return !by_.of().kept && op_.failed(); }
  received_message take() {
    connection_object& c = by_.of();
    if (!c.kept) return {ref<connection_object>{c}, op_.take()};
    received_message kept{ref<connection_object>{c}, *c.kept};
    c.kept.reset();
    return kept;
  }
  cordma::result<received_message> take_result() { return take(); }

 private:
  receiver by_;
  cordma::next_message_op op_;
};

}  // namespace

int cordma_send(cordma_connection connection, cordma_memory memory, size_t offset, size_t bytes,
                int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::send(message_of(c, memory_of(c, memory, offset, bytes)));
      },
      ignore);
}

int cordma_send_immediate(cordma_connection connection, cordma_memory memory, size_t offset,
                          size_t bytes, uint32_t immediate, int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::send_with_imm(message_of(c, memory_of(c, memory, offset, bytes)), immediate);
      },
      ignore);
}

int cordma_receive(cordma_connection connection, void* into, size_t room, cordma_message* about,
                   int64_t timeout_us) {
  if (into == nullptr && room != 0)
    return note(CORDMA_BAD_ARGUMENT, "cordma_receive: into is null, and room is not 0");
  return block<connection_object>(
      number_of(connection), timeout_us, [&](connection_object& c) { return next_op{c}; },
      [&](const received_message& came) { came.by->deliver(came.next, into, room, about); });
}

int cordma_write(cordma_connection connection, cordma_memory memory, size_t offset, size_t bytes,
                 cordma_remote remote, uint64_t at, int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::write(memory_of(c, memory, offset, bytes),
                             remote_slice(c, number_of(remote), at, bytes));
      },
      ignore);
}

int cordma_write_immediate(cordma_connection connection, cordma_memory memory, size_t offset,
                           size_t bytes, cordma_remote remote, uint64_t at, uint32_t immediate,
                           int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::write_with_imm(memory_of(c, memory, offset, bytes),
                                      remote_slice(c, number_of(remote), at, bytes), immediate);
      },
      ignore);
}

int cordma_read(cordma_connection connection, cordma_memory memory, size_t offset, size_t bytes,
                cordma_remote remote, uint64_t at, int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::read(memory_of(c, memory, offset, bytes),
                            remote_slice(c, number_of(remote), at, bytes));
      },
      ignore);
}

int cordma_compare_swap(cordma_connection connection, cordma_remote remote, uint64_t at,
                        uint64_t expected, uint64_t desired, uint64_t* before, int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::compare_swap(remote_slice(c, number_of(remote), at, word_bytes), expected,
                                    desired);
      },
      [&](std::uint64_t value) noexcept {
        if (before != nullptr) *before = value;
      });
}

int cordma_fetch_add(cordma_connection connection, cordma_remote remote, uint64_t at,
                     uint64_t addend, uint64_t* before, int64_t timeout_us) {
  return transfer(
      connection, timeout_us,
      [&](connection_object& c) {
        return cordma::fetch_add(remote_slice(c, number_of(remote), at, word_bytes), addend);
      },
      [&](std::uint64_t value) noexcept {
        if (before != nullptr) *before = value;
      });
}
