#include "meeting_frame.hpp"
#include "meeting_host.hpp"
#include "meeting_kinds.hpp"
#include "meeting_member.hpp"
#include "pmix_client.hpp"

#include "base/failures.hpp"
#include "base/time_text.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/runtime/runtime.hpp>

#include <utility>

namespace cordma::detail {
namespace {

/// Ranks that a launcher has started, which tells each the cards of all.
class pmix_meeting final : public meeting_kind {
 public:
  explicit pmix_meeting(pmix_client& client) noexcept : client_{client} {}

  [[nodiscard]] unsigned size() const noexcept override { return size_; }
  task<endpoint> where_to_listen(runtime& rt) override {
    const pmix_client::position own = co_await position(rt);
    size_ = own.size;
    const bool is_one_host = own.local_size >= own.size;
    co_return is_one_host ? endpoint{"127.0.0.1", 0} : reachable_endpoint(rt, {});
  }

  task<roster> meet(runtime& rt, const group_options& options, group_member self) override {
    check_own(self);
    const time_span limit = options.join_timeout;
    auto got =
        co_await as_result(with_timeout(exchange(rt, std::move(self)), limit, &rt.executor()));
    if (got.has_failure() && got.failure().code == make_error_code(errc::timed_out))
      throw_failure(errc::timed_out, "meeting::by_pmix",
                    detail_text("not all ranks of the job came within %s "
                                "(group_options::join_timeout)",
                                to_text(limit).c_str()));
    co_return std::move(got).value();
  }

  std::shared_ptr<void> watch(runtime& rt, callback<void(unsigned rank)>&& on_lost) override {
    return client_.watch(rt.executor(), std::move(on_lost));
  }

 private:
  task<pmix_client::position> position(runtime& rt) {
    return client_.threads().run(rt.executor(), [&client = client_](const std::stop_token& stop) {
      return client.begin(stop);
    });
  }

  task<roster> exchange(runtime& rt, group_member self) {
    const pmix_client::position own = co_await position(rt);
    auto ask = [&client = client_, card = encoded(std::move(self))](const std::stop_token& stop) {
      return client.exchange(stop, card, meeting_frame::arrival_bytes_max);
    };
    const auto cards = co_await client_.threads().run(rt.executor(), std::move(ask));
    roster all{.rank = own.rank};
    for (const pmix_client::bytes& one : cards) {
      meeting_frame::card read = decode(one, unsigned(all.members.size()));
      if (all.members.empty()) all.name = read.name;  // Rank 0's.
      all.members.push_back(std::move(read.member));
    }
    co_return all;
  }

  static meeting_frame::bytes encoded(group_member self) {
    return meeting_frame::encode(meeting_frame::card{random_name(), std::move(self)});
  }
  static meeting_frame::card decode(const pmix_client::bytes& from, unsigned rank) {
    try {
      return meeting_frame::decode_card(from);
    } catch (const error& e) {
      failure f = e.failure();
      f.detail = "rank " + std::to_string(rank) + ": " + std::string{f.detail.view()};
      throw_error(f);
    }
  }

  pmix_client& client_;
  unsigned size_ = 0;  ///< known once `where_to_listen` has ended
};

}  // namespace

bool has_pmix() noexcept { return pmix_client::is_available(); }

std::shared_ptr<meeting_kind> make_pmix_meeting() {
  return make_pmix_meeting(pmix_client::instance());
}

std::shared_ptr<meeting_kind> make_pmix_meeting(pmix_client& client) {
  return std::make_shared<pmix_meeting>(client);
}

}  // namespace cordma::detail
