#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <type_traits>

using cordma::errc;
using cordma::failure;
using cordma::remedy_kind;
using cordma::wc_errc;

static_assert(std::is_trivially_copyable_v<failure>);

TEST_CASE("a failure prints the call, the object, the code, the vendor code and the detail",
          "[base]") {
  const failure full{.code = wc_errc::retry_exceeded,
                     .call = "ibv_poll_cq",
                     .object = {"qp", 0x1a2},
                     .detail = {"the peer is gone"},
                     .vendor = 0x81};
  CHECK(full.to_string() ==
        "ibv_poll_cq(qp 0x1a2): transport retry counter exceeded (vendor 0x81): the peer is gone");
  CHECK(failure{.code = errc::closed, .call = "accept"}.to_string() ==
        "accept: closed on this side");
  CHECK(failure{.code = errc::closed}.to_string() == "closed on this side");
}

TEST_CASE("a failure says what a program can do about it", "[base]") {
  CHECK(failure{.code = errc::timed_out}.remedy() == remedy_kind::retry_later);
  CHECK(failure{.code = errc::disconnected}.remedy() == remedy_kind::reconnect);
  CHECK(failure{.code = errc::no_device}.remedy() == remedy_kind::fall_back);
  CHECK(failure{.code = errc::misaligned}.remedy() == remedy_kind::give_up);
  CHECK(failure{.code = wc_errc::flushed}.remedy() == remedy_kind::reconnect);
  CHECK(cordma::errno_failure(ENOMEM, "ibv_reg_mr").remedy() == remedy_kind::retry_later);
  CHECK(cordma::errno_failure(EPIPE, "write").remedy() == remedy_kind::reconnect);
  CHECK(cordma::errno_failure(ENOSYS, "io_uring_setup").remedy() == remedy_kind::fall_back);
  CHECK(cordma::errno_failure(EINVAL, "ibv_modify_qp").remedy() == remedy_kind::give_up);
}

TEST_CASE("an error is a system_error that carries its failure and survives copies", "[base]") {
  const cordma::error original{cordma::errno_failure(EINVAL, "ibv_create_cq", {"cq", 7})};
  const cordma::error copy = original;
  CHECK(copy.failure().object.number == 7);
  CHECK(copy.code() == std::errc::invalid_argument);
  CHECK(std::string{copy.what()} == "ibv_create_cq(cq 0x7): Invalid argument");
}

TEST_CASE("every code has a text of its own, and an unknown one says so", "[base]") {
  for (int value = 1; value <= int(errc::refused); ++value) {
    CHECK(cordma::errc_category().message(value) != "unknown cordma error");
  }
  for (int value = 1; value <= int(wc_errc::tag_matching_incomplete); ++value) {
    CHECK(cordma::wc_category().message(value) != "unknown work completion status");
  }
  CHECK(cordma::errc_category().message(9999) == "unknown cordma error");
  CHECK(cordma::wc_category().message(9999) == "unknown work completion status");
}

TEST_CASE("being stopped is not an error", "[base]") {
  static_assert(!std::is_base_of_v<cordma::error, cordma::cancelled>);
  CHECK(std::string{cordma::cancelled{}.what()} == "cordma: stopped");
}
