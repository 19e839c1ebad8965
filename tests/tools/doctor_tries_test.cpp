// The tries of cordma-doctor, on devices that lack something or fail.

#include "doctor/tries.hpp"

#include "support/device.hpp"
#include "support/skip.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

// <softverbs/softverbs.h> has them. Without softverbs there are none.
extern "C" {
[[gnu::weak]] int softverbs_fail_call(const char* verb, unsigned nth, int error);
[[gnu::weak]] int softverbs_pretend_missing(int capability);
[[gnu::weak]] int softverbs_reset(void);
}

using namespace cordma::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using doctor::severity;

namespace {

constexpr int memory_windows = 0;
constexpr int atomics = 1;
constexpr int atomic_write = 4;

/// The faults of soft0 that a test asked for are gone with it.
struct faults {
  faults() = default;
  faults(const faults&) = delete;
  faults& operator=(const faults&) = delete;
  ~faults() { softverbs_reset(); }
};

doctor::report report_of_tries() {
  doctor::report r;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  const std::unique_ptr<cordma::runtime> rt = doctor::try_runtime(s, r);
  if (rt == nullptr) return r;
  doctor::try_registration(*rt, s, r);
  doctor::try_operations(*rt, r);
  doctor::try_datagrams(*rt, s, r);
  doctor::try_uc(*rt, r);
  doctor::try_xrc(*rt, r);
  doctor::try_windows(*rt, s, r);
  return r;
}

/// A runtime on the device of the tests, for single tries.
struct tried_runtime {
  tried_runtime() {
    names.device = device_name();
    subject = doctor::read_subject(names);
    doctor::report unread;
    rt = doctor::try_runtime(subject, unread);
    REQUIRE(rt != nullptr);
  }

  doctor::chosen_names names{};
  doctor::subject subject{};
  std::unique_ptr<cordma::runtime> rt{};
};

cordma::task<std::string> what_never_arrives() {
  co_await cordma::sleep_for(std::chrono::hours{1});
  co_return "arrived";
}

std::string said(const doctor::report& r, const std::string& check) {
  const doctor::finding* const f = r.find(check);
  return f == nullptr ? "nothing" : std::string{to_string(f->severity)} + ": " + f->value;
}

}  // namespace

TEST_CASE("operations that a device lacks are notes, and no errors", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 pretends to lack something");
  const faults f;
  for (const int one : {memory_windows, atomics, atomic_write})
    REQUIRE(softverbs_pretend_missing(one) == 0);
  const doctor::report r = report_of_tries();
  CHECK_THAT(said(r, "try.compare_swap"), StartsWith("note: compare_swap: the device has none"));
  CHECK_THAT(said(r, "try.fetch_add"), StartsWith("note: fetch_add: the device has none"));
  CHECK_THAT(said(r, "try.atomic_write"), StartsWith("note: atomic_write: the device has none"));
  CHECK_THAT(said(r, "try.windows"),
             StartsWith("note: the device has no memory windows of type 2"));
  CHECK_THAT(said(r, "try.lend"), StartsWith("note: "));
  CHECK_THAT(said(r, "try.read"), StartsWith("ok: "));
  CHECK(r.count(severity::error) == 0);
}

TEST_CASE("a device that cannot be opened is named", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  REQUIRE(softverbs_fail_call("ibv_open_device", 1, EIO) == 0);
  doctor::report r;
  CHECK(doctor::try_runtime(s, r) == nullptr);
  CHECK_THAT(said(r, "try.runtime"), StartsWith("error: ibv_open_device"));
}

TEST_CASE("memory that cannot be registered is named, with the limit", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  doctor::report r;
  const std::unique_ptr<cordma::runtime> rt = doctor::try_runtime(s, r);
  REQUIRE(rt != nullptr);
  REQUIRE(softverbs_fail_call("ibv_reg_mr", 1, ENOMEM) == 0);
  doctor::try_registration(*rt, s, r);
  CHECK_THAT(said(r, "try.register"), StartsWith("error: ibv_reg_mr: Cannot allocate memory"));
  CHECK_THAT(r.find("try.register")->mend, Contains("ulimit -l"));
  CHECK_THAT(said(r, "try.dma_buf"), StartsWith("ok: the device takes dma-bufs"));
}

TEST_CASE("datagrams and other transports work on a good device", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("a device may lack UC, XRC or a multicast group");
  const doctor::report r = report_of_tries();
  for (const char* check :
       {"try.datagram", "try.multicast", "try.uc.send", "try.uc.write", "try.xrc"}) {
    INFO(check);
    CHECK_THAT(said(r, check), StartsWith("ok: ") && Catch::Matchers::EndsWith("s"));
  }
  CHECK_THAT(said(r, "try.multicast"), Contains("by group "));
}

TEST_CASE("a path that datagrams do not find is an error of UD", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  const tried_runtime t;
  doctor::report r;
  REQUIRE(softverbs_fail_call("ibv_create_ah", 1, ENETUNREACH) == 0);
  doctor::try_datagrams(*t.rt, t.subject, r);
  CHECK_THAT(said(r, "try.datagram"),
             StartsWith("error: ibv_create_ah") && Contains("Network is unreachable"));
  CHECK_THAT(r.find("try.datagram")->mend, Contains("see gid"));
  CHECK_THAT(said(r, "try.multicast"), StartsWith("ok: "));
}

TEST_CASE("a multicast group that cannot be joined is a warning", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  const tried_runtime t;
  doctor::report r;
  REQUIRE(softverbs_fail_call("ibv_attach_mcast", 1, ENOMEM) == 0);
  doctor::try_datagrams(*t.rt, t.subject, r);
  CHECK_THAT(said(r, "try.datagram"), StartsWith("ok: "));
  CHECK_THAT(said(r, "try.multicast"), StartsWith("warning: ibv_attach_mcast"));
  CHECK_THAT(r.find("try.multicast")->mend, Contains("multicast on"));
}

TEST_CASE("a device that refuses UC gets a warning with the setting that avoids it",
          "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  const tried_runtime t;
  doctor::report r;
  REQUIRE(softverbs_fail_call("ibv_create_qp", 1, EINVAL) == 0);
  doctor::try_uc(*t.rt, r);
  CHECK_THAT(said(r, "try.uc.send"), StartsWith("warning: ibv_create_qp"));
  CHECK_THAT(r.find("try.uc.send")->mend, Contains("connection_options::transport"));
  CHECK_THAT(said(r, "try.uc.write"), StartsWith("ok: "));
}

TEST_CASE("an XRC domain that cannot be opened is named", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  const tried_runtime t;
  doctor::report r;
  REQUIRE(softverbs_fail_call("ibv_open_xrcd", 1, EPERM) == 0);
  doctor::try_xrc(*t.rt, r);
  CHECK_THAT(said(r, "try.xrc"), StartsWith("error: ibv_open_xrcd"));
}

TEST_CASE("an attempt that does not end by its deadline says that nothing arrived",
          "[tools][device]") {
  const tried_runtime t;
  const doctor::outcome o =
      doctor::outcome_in_time(*t.rt, what_never_arrives(), std::chrono::milliseconds{1});
  CHECK(o.kind == doctor::outcome_kind::failure);
  CHECK(o.text == "it did not end within 1 ms: what was sent did not arrive");
  doctor::report r;
  doctor::add_outcome(r, "try.one", o, "why", {severity::warning, "mend"});
  CHECK(said(r, "try.one") == "warning: " + o.text);
  CHECK(r.find("try.one")->mend == "mend");
}
