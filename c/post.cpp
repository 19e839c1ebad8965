#include "post.hpp"

#include "call.hpp"

namespace cordma::c {

void post_pool::grow() { free_ = made_.emplace_back(std::make_unique<post>(*this)).get(); }

/// Takes the outcome, and ends the operation.
int post::settle(std::uint64_t& value) noexcept {
  disarm();
  const int status = guarded([&] {
    return std::visit(
        [&]<class Op>(Op& op) {
          if constexpr (!std::is_same_v<Op, std::monostate>) {
            if (has_expired_ && op.failed()) {
              const auto how = op.take_result();
              if (how.is_cancelled())
                return note(CORDMA_TIMED_OUT, "a posted request: deadline passed");
              return note(outcome_of(how.failure()));
            }
            value = op.take();
          }
          return int{CORDMA_OK};
        },
        op_);
  });
  op_.emplace<std::monostate>();
  stop_.reset();
  has_expired_ = false;
  return status;
}

std::coroutine_handle<> post::on_end(waiter& self) noexcept {
  auto& one = static_cast<post&>(self);
  std::uint64_t value = 0;
  const int status = one.settle(value);
  const auto [connection, completed, user] = std::tuple{one.connection, one.completed, one.user};
  // The program may post again in the callback, and gets this one.
  one.pool_.give_back(one);
  if (completed != nullptr)
    completed(pointer_of<cordma_connection>(connection), status, value, user);
  return std::noop_coroutine();
}

void post::on_fire(timer& self) noexcept {
  auto& one = static_cast<post&>(self);
  one.has_expired_ = true;
  one.stop_->request_stop();
}

}  // namespace cordma::c

using namespace cordma::c;
using cordma::local_mr_slice;
using cordma::remote_mr_slice;

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
  return enter<connection_object>(number_of(connection), [&](connection_object& c) {
    context& in = c.owner;
    cordma::scheduler& on = in.rt.executor();
    const auto begin = [&](auto&& op) {
      post& one = in.posts.take();
      one.connection = c.number;
      one.completed = completed;
      one.user = user;
      const int status = one.begin(on, std::move(op), timeout_us);
      if (on.has_ready()) in.kick();
      return status;
    };
    constexpr std::uint64_t word = sizeof(std::uint64_t);
    switch (work->kind) {
      case CORDMA_SEND: return begin(c.link.send(message_of(c, memory_of(in, *work))));
      case CORDMA_SEND_IMMEDIATE:
        return begin(c.link.send_with_imm(message_of(c, memory_of(in, *work)), work->immediate));
      case CORDMA_WRITE:
        return begin(c.link.write(memory_of(in, *work), remote_of(c, *work, work->bytes)));
      case CORDMA_WRITE_IMMEDIATE:
        return begin(c.link.write_with_imm(memory_of(in, *work), remote_of(c, *work, work->bytes),
                                           work->immediate));
      case CORDMA_READ:
        return begin(c.link.read(memory_of(in, *work), remote_of(c, *work, work->bytes)));
      case CORDMA_COMPARE_SWAP:
        return begin(c.link.compare_swap(remote_of(c, *work, word), work->expected, work->operand));
      case CORDMA_FETCH_ADD:
        return begin(c.link.fetch_add(remote_of(c, *work, word), work->operand));
      default: return note(CORDMA_BAD_ARGUMENT, "cordma_post: work->kind is no cordma_kind");
    }
  });
}
