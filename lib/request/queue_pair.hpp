#pragma once

#include "queue/callback_queue_pair.hpp"

#include <cordma/detail/request/receive_op.hpp>
#include <cordma/detail/request/requester.hpp>

#include <array>
#include <cstddef>

namespace cordma {

/// A queue pair whose requests and messages are awaited. It outlives operations that have not
/// started; started operations, and handles, may outlive it. \thread the executor's.
class queue_pair final : public callback_queue_pair, public requester<queue_pair> {
 public:
  /// Makes a queue pair; `callback_queue_pair` documents parameters and errors.
  queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
             const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
             shared_receives* pool = nullptr,
             verbs::queue_pair_type type = verbs::queue_pair_type::rc,
             verbs::xrc_domain* domain = nullptr)
      : callback_queue_pair{
            driver, pd,
            wanted, message_max_bytes,
            pool,   {.has_atomics = has_atomics(type), .type = type, .xrc_domain = domain}} {}

  next_message_op next_message() noexcept { return {receives(), {}}; }
  receive_op<1> recv(const local_mr_slice& buffer) noexcept { return {receives(), {buffer}}; }
  template <std::size_t N>
  receive_op<N> recv(const std::array<local_mr_slice, N>& buffer) noexcept {
    return {receives(), buffer};
  }

 private:
  static constexpr bool has_atomics(verbs::queue_pair_type type) noexcept {
    return type == verbs::queue_pair_type::rc || type == verbs::queue_pair_type::xrc_initiator;
  }
};

}  // namespace cordma
