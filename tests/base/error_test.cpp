#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <string>
#include <type_traits>

using namespace cordma;

static_assert(std::is_trivially_copyable_v<failure>);
static_assert(std::is_nothrow_copy_constructible_v<error>);

TEST_CASE("a failure prints the call, the object, the code, the vendor and the way out", "[base]") {
  failure f = errno_failure(EINVAL, "ibv_modify_qp", {"qp", 0x1a2}, "INIT to RTS skips RTR");
  CHECK(f.to_string() == "ibv_modify_qp(qp 0x1a2): Invalid argument: INIT to RTS skips RTR");
  f.vendor = 0x81;
  CHECK(f.to_string() ==
        "ibv_modify_qp(qp 0x1a2): Invalid argument (vendor 0x81): INIT to RTS skips RTR");
}

TEST_CASE("a failure prints no more than it knows", "[base]") {
  CHECK(failure{.code = errc::timed_out}.to_string() == "deadline passed");
  CHECK(failure{.code = wc_errc::flushed, .call = "send"}.to_string() ==
        "send: Work Request Flushed Error");
}

TEST_CASE("every code has a text of its own, and a number we don't know has one too", "[base]") {
  for (int value = 1; value <= int(errc::ranks_disagree); ++value) {
    CHECK(error::category().message(value) != "unknown cordma error");
  }
  for (int value = 1; value <= int(wc_errc::tag_matching_incomplete); ++value) {
    CHECK(error::completion_category().message(value) != "unknown");
  }
  CHECK(error::category().message(999) == "unknown cordma error");
  CHECK(error::completion_category().message(999) == "unknown");
}

TEST_CASE("the remedy follows from the code", "[base]") {
  CHECK(failure{.code = errc::timed_out}.remedy() == failure::remedy_kind::retry_later);
  CHECK(failure{.code = errc::disconnected}.remedy() == failure::remedy_kind::reconnect);
  CHECK(failure{.code = errc::no_device}.remedy() == failure::remedy_kind::fall_back);
  CHECK(failure{.code = errc::out_of_range}.remedy() == failure::remedy_kind::give_up);
  CHECK(failure{.code = errc::bad_message}.remedy() == failure::remedy_kind::give_up);
  CHECK(failure{.code = wc_errc::remote_access}.remedy() == failure::remedy_kind::reconnect);
  CHECK(errno_failure(ECONNREFUSED, "connect").remedy() == failure::remedy_kind::retry_later);
  CHECK(errno_failure(ECONNRESET, "read").remedy() == failure::remedy_kind::reconnect);
  CHECK(errno_failure(ENOSYS, "io_uring_setup").remedy() == failure::remedy_kind::fall_back);
  CHECK(errno_failure(EINVAL, "bind").remedy() == failure::remedy_kind::give_up);
}

TEST_CASE("an error is caught as a std::system_error with the failure's code and text", "[base]") {
  try {
    throw error{{.code = errc::no_gid, .call = "find_gid"}};
  } catch (const std::system_error& e) {
    CHECK(e.code() == errc::no_gid);
    CHECK(std::string{e.what()} == "find_gid: no usable GID");
  }
}

TEST_CASE("an error that was moved from still says what it said", "[base]") {
  error first{{.code = errc::closed, .call = "channel"}};
  const error second{std::move(first)};
  CHECK(std::string{first.what()} == second.what());
}
