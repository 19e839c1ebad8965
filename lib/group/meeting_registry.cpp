#include "meeting_registry.hpp"

#include "base/failures.hpp"
#include "meeting_member.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <optional>
#include <utility>

namespace cordma::detail {
namespace {

/// Arrivals are small, and none is fetched by rendezvous.
constexpr stream_options arrivals{.depth = 8,
                                  .buffer_bytes = meeting_frame::arrival_bytes_max,
                                  .message_bytes_max = meeting_frame::arrival_bytes_max,
                                  .large_ahead = 0};

/// Returns what a peer is told of an error.
std::string reason_of(const failure& f) {
  if (!f.detail.empty()) return std::string{f.detail.view()};
  const bool is_silent = f.code == make_error_code(errc::timed_out);
  return is_silent ? "a peer that did not say which rank it is" : f.to_string();
}

std::vector<meeting_frame::bytes> parts_of(const roster& all) {
  std::vector<meeting_frame::bytes> parts;
  for (std::size_t next = 0; next < all.members.size();)
    parts.push_back(meeting_frame::encode_part(all, next));
  return parts;
}

task<> tell(message_stream& peer, const std::vector<meeting_frame::bytes>& messages) {
  for (const meeting_frame::bytes& one : messages) co_await peer.send(one);
  co_await peer.close();
}

}  // namespace

/// A rank that has come, until its connection ends before the meeting does.
class meeting_registry::seat {
 public:
  seat(meeting_registry& all, const meeting_frame::arrival& from) : all_{all}, rank_{from.rank} {
    all_.enter(from);
  }
  seat(const seat&) = delete;
  ~seat() { all_.leave(rank_); }

 private:
  meeting_registry& all_;
  const unsigned rank_;
};

meeting_registry::meeting_registry(unsigned size, group_member self, time_span told_timeout)
    : all_{.rank = 0, .members = std::vector<group_member>(size), .name = random_name()},
      has_come_(size),
      missing_{size},
      told_timeout_{told_timeout} {
  enter({.rank = 0, .size = size, .member = std::move(self)});
}

void meeting_registry::check(const meeting_frame::arrival& from) const {
  const std::size_t size = all_.members.size();
  if (from.size != size)
    throw_failure(errc::refused, "meeting",
                  detail_text("rank %u has come for a group of %u, but %zu ranks meet here",
                              from.rank, from.size, size));
  if (from.rank >= size)
    throw_failure(errc::refused, "meeting",
                  detail_text("there is no rank %u in a group of %zu", from.rank, size));
  if (has_come_[from.rank])
    throw_failure(errc::refused, "meeting",
                  detail_text("rank %u has come already: it listens at %s", from.rank,
                              all_.members[from.rank].endpoint.c_str()));
}

void meeting_registry::enter(const meeting_frame::arrival& from) {
  check(from);
  if (has_ended_.is_set()) return;
  all_.members[from.rank] = from.member;
  // From now on the roster is what it is, whoever is lost before all have heard it.
  if (missing_ == 1) told_ = parts_of(all_);
  has_come_[from.rank] = true;
  if (--missing_ == 0) has_ended_.set();
}

void meeting_registry::leave(unsigned rank) noexcept {
  if (has_ended_.is_set()) return;
  has_come_[rank] = false;
  ++missing_;
}

task<> meeting_registry::serve(connection conn) {
  message_stream peer{std::move(conn), arrivals};
  std::optional<seat> own;
  std::string refusal;
  try {
    const stream_message first = co_await with_timeout(peer.receive(), arrival_timeout);
    own.emplace(*this, meeting_frame::decode_arrival(first.bytes()));
    const auto ended = co_await when_any(has_ended_.wait(), peer.receive());
    if (ended.index() != 0) refusal = "a rank says nothing more before it is told";
  } catch (const error& e) {
    refusal = reason_of(e.failure());
  }
  if (refusal.empty()) co_return co_await with_timeout(tell(peer, told_), told_timeout_);
  own.reset();
  last_failure_ = peer.connection().peer().to_string() + ": " + refusal;
  const std::vector<meeting_frame::bytes> answer{meeting_frame::encode_refusal(refusal)};
  co_await with_timeout(tell(peer, answer), arrival_timeout);
}

void meeting_registry::on_failure(const handler_failure& lost) { last_failure_ = lost.to_string(); }

void meeting_registry::refuse(const failure& why) {
  if (has_ended_.is_set()) return;
  told_.push_back(meeting_frame::encode_refusal(reason_of(why)));
  has_ended_.set();
}

std::vector<unsigned> meeting_registry::missing() const {
  std::vector<unsigned> ranks;
  for (unsigned rank = 0; rank < has_come_.size(); ++rank)
    if (!has_come_[rank]) ranks.push_back(rank);
  return ranks;
}

}  // namespace cordma::detail
