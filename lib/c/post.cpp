#include "post.hpp"

#include "call.hpp"
#include "request/queue_pair.hpp"

namespace cordma::c {

void post_pool::grow() { free_ = made_.emplace_back(std::make_unique<post>(*this)).get(); }

/// Takes the outcome, and ends or leaves the request.
int post::settle(std::uint64_t& value) noexcept {
  disarm();
  const int status = guarded([&] {
    std::visit(
        [&]<class Told>(const Told& request) {
          if constexpr (!std::is_same_v<Told, std::monostate>) value = request.take();
        },
        request_);
    return int{CORDMA_OK};
  });
  is_begun_ = false;
  request_.emplace<std::monostate>();
  return status;
}

std::coroutine_handle<> post::on_ready(waiter& self) noexcept {
  auto& one = static_cast<post&>(self);
  std::uint64_t value = 0;
  const int status = one.settle(value);
  const auto connection = pointer_of<cordma_connection>(one.connection);
  cordma_completed* const completed = one.completed;
  void* const user = one.user;
  // The program may post again in the callback, and gets this one.
  one.pool_.give_back(one);
  if (completed != nullptr) completed(connection, status, value, user);
  return std::noop_coroutine();
}

}  // namespace cordma::c

using namespace cordma::c;
using cordma::local_mr_slice;
using cordma::remote_mr_slice;
using cordma::send_queue;

namespace {

/// The memory of a request; a message is no longer than `receive_bytes`.
local_mr_slice memory_of(context& in, const cordma_work& work) {
  return found<memory_object>(in, number_of(work.memory)).slice(work.offset, work.bytes);
}

remote_mr_slice remote_of(connection_object& at, const cordma_work& work, std::uint64_t bytes) {
  return remote_slice(at, number_of(work.remote), work.at, bytes);
}

}  // namespace

int cordma_post(cordma_connection connection, const cordma_work* work, int64_t timeout_us,
                cordma_completed* completed, void* user) {
  if (work == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_post: work is null");
  const auto post_on = [&](connection_object& c, int64_t left_us) {
    context& in = c.owner;
    cordma::scheduler& on = in.rt.executor();
    send_queue& queue = c.link.qp().sends();
    const auto begin = [&](const auto& request) {
      const cordma::time_point next = on.next_deadline();
      post& one = in.posts.take();
      one.connection = c.number;
      one.completed = completed;
      one.user = user;
      const int status = one.begin(on, queue, request, left_us);
      if (on.has_ready() || on.next_deadline() < next) in.kick();
      return status;
    };
    constexpr std::uint64_t word = sizeof(std::uint64_t);
    switch (work->kind) {
      case CORDMA_SEND: return begin(cordma::send(message_of(c, memory_of(in, *work))));
      case CORDMA_SEND_IMMEDIATE:
        return begin(cordma::send_with_imm(message_of(c, memory_of(in, *work)), work->immediate));
      case CORDMA_WRITE:
        return begin(cordma::write(memory_of(in, *work), remote_of(c, *work, work->bytes)));
      case CORDMA_WRITE_IMMEDIATE:
        return begin(cordma::write_with_imm(memory_of(in, *work), remote_of(c, *work, work->bytes),
                                            work->immediate));
      case CORDMA_READ:
        return begin(cordma::read(memory_of(in, *work), remote_of(c, *work, work->bytes)));
      case CORDMA_COMPARE_SWAP:
        return begin(
            cordma::compare_swap(remote_of(c, *work, word), work->expected, work->operand));
      case CORDMA_FETCH_ADD:
        return begin(cordma::fetch_add(remote_of(c, *work, word), work->operand));
      default: return note(CORDMA_BAD_ARGUMENT, "cordma_post: work->kind is no cordma_kind");
    }
  };
  return enter_within<connection_object>(number_of(connection), timeout_us, post_on);
}
