// The credits of one end of a stream, frame by frame.
#include "messages/credit_account.hpp"

#include <support/aborts.hpp>

#include <catch2/catch.hpp>

using cordma::detail::credit_account;
namespace protocol = cordma::message_protocol;

namespace {

/// Two ends that tell each other what they took.
struct ends {
  explicit ends(std::uint32_t credit) {
    a.grow_to(credit);
    b.grow_to(credit);
    a.limit_peer(credit, 0, true);
    b.limit_peer(credit, 0, true);
  }
  static void send(credit_account& from, credit_account& to, std::uint32_t taken_at_once = 1) {
    from.count_sent();
    CHECK(to.try_release(from.taken()));
    to.count_received();
    to.count_taken(taken_at_once);
  }
  credit_account a, b;
};

bool aborts(void (*body)()) { return support::run_in_child(body).aborted; }

}  // namespace

TEST_CASE("before the peer has told its terms, nothing may be sent", "[messages]") {
  const credit_account account;
  CHECK_FALSE(account.may_send(0));
  CHECK_FALSE(account.may_send_message());
}

TEST_CASE("messages leave the reserved credits to other frames, and no frame goes without credit",
          "[messages]") {
  credit_account account;
  account.grow_to(protocol::credits_min);
  for (std::uint32_t n = protocol::credits_reserved; n < protocol::credits_min; ++n) {
    CHECK(account.may_send_message());
    account.count_sent();
  }
  CHECK_FALSE(account.may_send_message());
  for (std::uint32_t n = 0; n < protocol::credits_reserved; ++n) {
    CHECK(account.may_send(0));
    account.count_sent();
  }
  CHECK_FALSE(account.may_send(0));
  CHECK(account.in_flight() == protocol::credits_min);
}

TEST_CASE("the last credit frame occupies no credit of messages", "[messages]") {
  credit_account account;
  account.grow_to(protocol::credits_min);
  account.count_sent();
  account.mark_credit_frame();
  for (std::uint32_t n = protocol::credits_reserved; n < protocol::credits_min; ++n) {
    CHECK(account.may_send_message());
    account.count_sent();
  }
  CHECK_FALSE(account.may_send_message());
}

TEST_CASE("a peer cannot have taken what was not sent", "[messages]") {
  credit_account account;
  account.grow_to(protocol::credits_min);
  account.count_sent();
  CHECK_FALSE(account.try_release(protocol::count_first + 2));
  CHECK(account.in_flight() == 1);
  CHECK(account.try_release(protocol::count_first + 1));
  CHECK(account.in_flight() == 0);
  CHECK_FALSE(account.try_release(protocol::count_first));
}

TEST_CASE("frames are counted past 2^32", "[messages]") {
  ends s{protocol::credits_min};
  for (int n = 0; n < 1000; ++n) {
    CHECK(s.a.may_send_message());
    ends::send(s.a, s.b);
    ends::send(s.b, s.a);
  }
  CHECK(s.a.in_flight() == 0);
  CHECK(s.b.in_flight() == 1);  // `a` has sent nothing since it took the last frame.
}

TEST_CASE("the peer is told of its credits before it has used them up", "[messages]") {
  ends s{16};
  unsigned sent = 0;
  while (!s.b.needs_telling()) {
    REQUIRE(s.a.may_send_message());
    ends::send(s.a, s.b);
    ++sent;
  }
  CHECK(sent > 1);  // A credit frame tells of several messages.
  CHECK(s.a.may_send_message());
  s.b.count_sent();
  CHECK_FALSE(s.b.needs_telling());
  CHECK(s.a.try_release(s.b.taken()));
  CHECK(s.a.in_flight() == 0);
}

TEST_CASE("a credit frame alone is not answered by one", "[messages]") {
  ends s{protocol::credits_min};
  // All but the reserved credits are used, and nothing of that is taken.
  for (std::uint32_t n = protocol::credits_reserved; n < protocol::credits_min; ++n) {
    s.a.count_sent();
    s.b.count_received();
  }
  s.a.count_sent();
  s.b.count_received();
  s.b.count_credit_frame();
  s.b.count_taken(1);
  CHECK_FALSE(s.b.needs_telling());
  s.b.count_taken(1);
  CHECK(s.b.needs_telling());
}

TEST_CASE("a shrink keeps the credits of what is in flight", "[messages]") {
  credit_account account;
  account.grow_to(32);
  for (int n = 0; n < 3; ++n) account.count_sent();
  account.request_shrink(8);
  CHECK(account.has_shrink_request());
  CHECK(account.shrunk_credit() == 11);
  account.shrink_to(account.shrunk_credit());
  CHECK_FALSE(account.has_shrink_request());
  CHECK(account.credit() == 11);
}

TEST_CASE("more credit is due when the peer uses half of what its messages can", "[messages]") {
  credit_account account;
  account.limit_peer(16, 0, true);
  CHECK_FALSE(account.is_growth_due(5));
  CHECK(account.is_growth_due(6));
  account.limit_peer(16, 4, true);  // The peer keeps four in flight for long.
  CHECK_FALSE(account.is_growth_due(7));
  CHECK(account.is_growth_due(8));
  account.limit_peer(16, 0, false);
  CHECK_FALSE(account.is_growth_due(16));
}

TEST_CASE("a count that cannot be is found at once", "[messages]") {
  CHECK(aborts([] { credit_account{}.count_sent(); }));
  CHECK(aborts([] { credit_account{}.count_taken(1); }));
  CHECK(aborts([] { credit_account{}.shrink_to(8); }));
  CHECK(aborts([] { credit_account{}.request_shrink(8); }));
  CHECK(aborts([] {
    credit_account account;
    account.grow_to(8);
    account.grow_to(8);
  }));
}
