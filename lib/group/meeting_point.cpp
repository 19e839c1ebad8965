#include "meeting_host.hpp"
#include "meeting_kinds.hpp"
#include "meeting_member.hpp"
#include "meeting_registry.hpp"

#include "base/failures.hpp"
#include "base/time_text.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cordma::detail {
namespace {

using std::chrono::milliseconds;

constexpr const char* call = "meeting::at";
/// Pauses between two tries to connect: the first, and the longest, which many ranks share.
constexpr milliseconds pause_min{5};
constexpr milliseconds pause_max{500};

/// The roster comes in parts, none of which is fetched by rendezvous.
constexpr stream_options answers{.depth = 16,
                                 .buffer_bytes = meeting_frame::part_bytes_max,
                                 .message_bytes_max = meeting_frame::part_bytes_max,
                                 .large_ahead = 0};

/// Returns the program's options, without what only the group's connections have. Queues are small,
/// for rank 0 has a connection to every rank.
connection_changes changes_of(const group_options& options) {
  connection_changes all = options.connections;
  all.transport = verbs::queue_pair_type::rc;
  all.xrc_domain = nullptr;
  all.capabilities = verbs::queue_pair_capabilities{.send_wr_max = 32, .recv_wr_max = 32};
  all.receives_from = nullptr;
  all.preposted = 0;
  all.plain = false;
  all.private_data = std::array<std::byte, 64>{};
  return all;
}

listener_options limits_for(unsigned size) {
  listener_options limits;
  limits.handshakes_max =
      std::clamp(size, limits.handshakes_max, listener_options::handshakes_limit);
  limits.ready_max = std::clamp(size, limits.ready_max, listener_options::ready_limit);
  limits.tcp_backlog = int(std::clamp(size, unsigned(limits.tcp_backlog), 4096U));
  return limits;
}

/// Returns true if rank 0 may yet come to listen, or its host, its name, or a free handshake.
bool may_come_later(const std::error_code& why) {
  constexpr int errors[] = {ECONNREFUSED, ECONNRESET,  ECONNABORTED, EPIPE,  ETIMEDOUT,
                            EHOSTUNREACH, ENETUNREACH, EAGAIN,       ENOENT, EHOSTDOWN};
  constexpr errc own[] = {errc::timed_out, errc::disconnected, errc::refused, errc::unknown_host};
  const auto is = [&](auto one) { return why == make_error_code(one); };
  return std::ranges::any_of(own, is) ||
         (why.category() == std::system_category() &&
          std::ranges::find(errors, why.value()) != std::end(errors));
}

class point_meeting final : public meeting_kind {
 public:
  explicit point_meeting(meeting_point where)
      : where_{std::move(where)}, text_{where_.address.to_string()} {}

  [[nodiscard]] unsigned size() const noexcept override { return where_.size; }
  task<endpoint> where_to_listen(runtime& rt) override {
    const bool is_one_host = where_.is_one_host || is_this_host(where_.address);
    endpoint own =
        is_one_host ? endpoint{"127.0.0.1", 0} : reachable_endpoint(rt, where_.address.host);
    if (where_.address.kind == endpoint::bootstrap::rdma_cm) own.kind = where_.address.kind;
    co_return own;
  }

  task<roster> meet(runtime& rt, const group_options& options, group_member self) override {
    check_own(self);
    if (where_.rank > 0) co_return co_await join(rt, options, std::move(self));
    if (where_.size > 1) co_return co_await convene(rt, options, std::move(self));
    roster single{.name = random_name()};
    single.members.push_back(std::move(self));
    co_return single;
  }

 private:
  [[nodiscard]] listener listen(runtime& rt, const connection_changes& changes) const {
    try {
      return rt.listen(where_.address, limits_for(where_.size), changes);
    } catch (const error& e) {
      if (e.code() != std::error_code{EADDRINUSE, std::system_category()}) throw;
      failure f = e.failure();
      f.detail = std::string{f.detail.view()} + where_.advice;
      throw_error(f);
    }
  }

  /// Does rank 0's part: the others come here.
  task<roster> convene(runtime& rt, const group_options& options, group_member self) const {
    const time_span limit = options.join_timeout;
    meeting_registry all{where_.size, std::move(self), limit};
    listener acceptor = listen(rt, changes_of(options));
    std::optional<failure> failed;
    const auto receive_all = [&](scope& running) -> task<> {
      running.spawn(cordma::serve(
          acceptor, [&](connection conn) { return all.serve(std::move(conn)); },
          [&](const handler_failure& f) { all.on_failure(f); },
          where_.size + meeting_registry::strangers_max));
      const auto ended = co_await as_result(with_timeout(all.has_ended().wait(), limit));
      if (ended.has_failure()) {
        failed = missing_ranks(call, all.missing(), where_.size, limit, text_);
        all.refuse(*failed);
      }
      acceptor.close();
    };
    co_await with_scope(receive_all, &rt.executor());
    if (failed) {
      if (!all.last_failure().empty())
        failed->detail =
            std::string{failed->detail.view()} + "; turned away: " + all.last_failure();
      throw_error(*failed);
    }
    co_return std::move(all).take();
  }

  /// Does the part of the other ranks.
  task<roster> join(runtime& rt, const group_options& options, group_member self) const {
    const time_span limit = options.join_timeout;
    std::optional<failure> last;  // Why rank 0 could not be reached; none: it was.
    result<roster> all = co_await as_result(
        with_timeout(ask(rt, changes_of(options), std::move(self), last), limit, &rt.executor()));
    if (!all.has_failure()) co_return std::move(all).value();
    failure f = all.failure();
    if (f.code == make_error_code(errc::timed_out)) {
      f.detail = "rank " + std::to_string(where_.rank) + " of " + std::to_string(where_.size) +
                 (last ? " could not reach rank 0 at " + text_
                       : " came to " + text_ + ", but not all ranks did") +
                 " within " + to_text(limit) + " (group_options::join_timeout)" +
                 (last ? "; last: " + last->to_string() + where_.advice : "");
    } else {
      f.detail = "rank 0 at " + text_ + ": " +
                 (f.detail.empty() ? f.to_string() : std::string{f.detail.view()});
    }
    f.call = call;
    throw_error(f);
  }

  task<roster> ask(runtime& rt, connection_changes changes, group_member self,
                   std::optional<failure>& last) const {
    message_stream rank_0{co_await reach(rt, changes, last), answers};
    last.reset();
    const meeting_frame::bytes own = meeting_frame::encode(
        {.rank = where_.rank, .size = where_.size, .member = std::move(self)});
    co_await rank_0.send(own);
    roster all{.rank = where_.rank};
    while (all.members.size() < where_.size) {
      const stream_message part = co_await rank_0.receive();
      meeting_frame::decode_part(part.bytes(), all, where_.size);
    }
    co_await rank_0.close();
    co_return all;
  }

  /// Connects, as soon as rank 0 listens.
  task<connection> reach(runtime& rt, connection_changes changes,
                         std::optional<failure>& last) const {
    for (milliseconds pause = pause_min;; pause = std::min(2 * pause, pause_max)) {
      result<connection> made = co_await as_result(rt.connect(where_.address, changes));
      if (!made.has_failure()) co_return std::move(made).value();
      if (!may_come_later(made.failure().code)) throw_error(made.failure());
      last = made.failure();
      co_await rt.executor().sleep_for(pause);
    }
  }

  const meeting_point where_;
  const std::string text_;
};

}  // namespace

std::shared_ptr<meeting_kind> make_point_meeting(meeting_point where) {
  check_rank(call, where.rank, where.size);
  endpoint reached = where.address;
  if (where.rank == 0 && is_wildcard(reached.host)) reached.host = "localhost";
  if (const std::string fault = fault_of(reached.to_string()); where.size > 1 && !fault.empty())
    throw_errno(EINVAL, call, fault);
  return std::make_shared<point_meeting>(std::move(where));
}

}  // namespace cordma::detail
